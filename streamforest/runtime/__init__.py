"""The consumer: read a batch, advance the models, write predictions, snapshot, recover."""
