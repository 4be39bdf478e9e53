"""The warehouse: storage, migrations, queries, analysis, import and export."""
