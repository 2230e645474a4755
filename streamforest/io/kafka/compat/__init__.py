"""Everything that touches private members of kafka-python."""
