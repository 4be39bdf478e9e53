"""SQL only: numbered migrations and the views, installed as the resource package `db.schema`."""
