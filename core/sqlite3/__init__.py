"""Django's SQLite backend, with its writers of one process in line."""
