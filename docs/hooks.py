"""A hook of MkDocs: the README is the site's first page."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the README as `index.md`; its links to pages lose their folder."""
    readme = Path(config.docs_dir).parent / "README.md"
    files.append(File.generated(config, "index.md", content=readme.read_text().replace("](docs/", "](")))
    return files
