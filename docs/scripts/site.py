"""Hook of the documentation site: the CSV files of laboratory/ lie beside its pages, whose links lead there."""

from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the data of the ledger to the site."""
    for path in sorted(Path(str(config.config_file_path)).parent.glob("laboratory/*.csv")):
        files.append(File.generated(config, path.name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead links to the data of the ledger to their place in the site."""
    return markdown.replace("](../laboratory/", "](")
