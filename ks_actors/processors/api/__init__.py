"""The Processor API and the contract of operators."""
