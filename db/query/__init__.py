"""SQL queries of users: their execution, answers and the data dictionary."""
