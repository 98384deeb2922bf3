"""The C kernel and its Python boundary."""
