"""What `secondread demo` is made of."""
