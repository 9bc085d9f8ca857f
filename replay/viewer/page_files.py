"""The page's files by name: what lies in `page/`, and nothing else. A name is looked up, never joined to a path."""

from pathlib import Path

FOLDER = Path(__file__).parent / "page"
INDEX = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".txt": "text/plain; charset=utf-8",
}


def page_files(folder: Path = FOLDER) -> dict[str, Path]:
    """Name with slashes → file. Links are left out: they could lead anywhere."""
    found = (path for path in folder.rglob("*") if path.suffix in TYPES and path.is_file() and not path.is_symlink())
    return {path.relative_to(folder).as_posix(): path for path in sorted(found)}


def content_type(name: str) -> str:
    return TYPES[Path(name).suffix]
