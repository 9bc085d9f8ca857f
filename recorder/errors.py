"""What can be wrong with a recording: typed errors whose text says which file, what was found and what to do."""

from pathlib import Path

from engine.core.errors import EngineError


class RecordingError(EngineError):
    """The recording cannot be opened as asked."""


class NotARecording(RecordingError):
    """The file does not begin as a recording does, or ends inside its header."""


class NewerFormat(RecordingError):
    """The file says that a reader of a later format is needed."""

    def __init__(self, path: Path, needed: int, known: int) -> None:
        super().__init__(
            f"{path} needs a reader of format {needed} or later, this one reads up to {known}: use a newer reprise"
        )


class NoContents(RecordingError):
    """There is no vault beside the recording: prompts and output tokens were not kept."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} holds no contents: token ids are kept only where the server was started with --record-content"
        )


class RecordingUnwritable(RecordingError):
    """The recorder cannot begin: said at start, so that nobody believes that it records."""
