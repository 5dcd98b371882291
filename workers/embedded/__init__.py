"""Our own Valkey and PostgreSQL, for a machine where nothing is installed."""
