"""Where events come from and where predictions go: Kafka, files, codecs."""
