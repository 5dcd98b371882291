"""What the product knows. No Celery, no HTTP server, no environment variables."""
