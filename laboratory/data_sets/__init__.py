"""Data sets of single papers: functions that `data` names, such as laboratory.data_sets.synthetic:load."""


def short_name(data: str) -> str:
    """Name of a data set of this folder, such as ptb-xl; any other value of `data` as it is."""
    return data.removeprefix(f"{__name__}.").removesuffix(":load").replace("_", "-") if __name__ in data else data
