"""Results do not depend on where commits fall, nor on what becomes of objects that were put or read."""
