"""A broker, two instances of the flights job under load, and the page of each."""
