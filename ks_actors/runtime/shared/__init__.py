"""Parts that several actors share."""
