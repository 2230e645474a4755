"""Everything that touches private members of kafka-python. No other folder does.

Importing it checks that this release still has each of those members and still reads and writes the
same bytes. If not, it raises DependencyError with what is missing: better than a pipeline that fails
in the middle of a commit.
"""

from streamforest.io.kafka.compat.members import check_members

check_members()  # first: the modules below use these members while they are imported

from streamforest.io.kafka.compat.batches import check_writing  # noqa: E402
from streamforest.io.kafka.compat.records import check_reading  # noqa: E402

check_writing()
check_reading()
