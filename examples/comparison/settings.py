"""Reader of a comparison's settings file in YAML or JSON."""

import dataclasses

from data_pipeline.base.settings import read_file

BACKBONES = ("xlnet", "bert")


@dataclasses.dataclass
class Entries:
    """Entries of a settings file, which compare_objectives.yaml explains."""

    vocabulary_size: int
    records: dict
    model: dict
    xlnet: dict
    bert: dict
    pretraining: dict
    finetuning: dict
    tasks: dict
    systems: dict


# Keys that each entry must have.
NEEDED = {
    **{field.name: () for field in dataclasses.fields(Entries)},
    "records": ("sequence_length",),
    "pretraining": ("steps", "batch_size"),
    "finetuning": ("steps", "batch_size", "sequence_length"),
}


def read_settings(file):
    """Read a settings file such as compare_objectives.yaml to a dict.

    Raises:
        FileNotFoundError: if the file does not exist.
        ValueError: if an entry is missing or not valid.
    """
    settings = read_file(Entries, file)
    for name, needed in NEEDED.items():
        values = settings.get(name)
        known = values if isinstance(values, dict) else {}
        missing = [x for x in needed if x not in known]
        if values is None or missing:
            raise ValueError(
                f"{file} needs the entry {name}"
                + (f" with {', '.join(missing)}." if missing else ".")
            )
    for name, system in settings["systems"].items():
        if "title" not in system or system.get("backbone") not in BACKBONES:
            raise ValueError(
                f"{file}: the system {name} needs a title, and a backbone, "
                f"which is {' or '.join(BACKBONES)}."
            )
    return settings
