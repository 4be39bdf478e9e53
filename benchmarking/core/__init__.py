"""The ground floor: records, contracts, tables and helpers for all rooms. Imports none of them."""
