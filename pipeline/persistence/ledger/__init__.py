"""PostgreSQL: every case, its state, its deadline, its result. One module a table's questions."""
