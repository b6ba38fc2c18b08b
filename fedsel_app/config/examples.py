"""Examples of the commands: what one does with each, as `--help` and docs/command-line.md show it."""

EXAMPLES: dict[str, dict[str, str]] = {
    "fedsel": {
        "fedsel run": "simulate one federation and print its result",
        "fedsel compare --strategies oort,random --out runs/two": "compare methods on the same seeds",
        "fedsel deploy --clients 3 --cohort 2": "train with real server and client processes on this machine",
    },
    "run": {
        "fedsel run --strategy random --out runs/first": "simulate one run of a method",
        "fedsel run --set lr=0.1 --dry-run": "change a setting, and see the plan without running it",
        "fedsel run --resume runs/first": "continue a run that was interrupted",
    },
    "deploy": {
        "fedsel deploy --clients 3 --cohort 2 --out runs/deployed": "train with a server and three clients",
        "fedsel deploy --resume runs/deployed": "continue a deployment that was interrupted",
        "fedsel deploy --clients 3 --cohort 2 --insecure": "do the same without TLS and keys",
    },
    "compare": {
        "fedsel compare --strategies oort,random --seeds 1,2,3 --out runs/two": "compare methods on the same seeds",
        "fedsel compare --strategies random --grid alpha=0.1,1 --out runs/alpha": "compare values of a setting",
        "fedsel compare --strategies oort,random --out runs/more --dry-run": "check everything, and list the runs",
    },
    "watch": {
        "fedsel watch runs/two": "follow a comparison",
        "fedsel watch runs/first": "follow one run",
    },
    "report": {
        "fedsel report runs/two": "write the report of a comparison",
        "fedsel report runs/first": "write the report of one run",
        "fedsel report runs/two --figures svg,pdf": "write the figures as files too",
    },
    "tune": {
        "fedsel tune --strategies oort,random --over lr --out runs/tuned": "tune a setting for each method",
        "fedsel tune --strategies oort,random --over lr=0.01..1 --out runs/range": "tune it within a range",
        "fedsel tune --strategies oort,random --over lr --trials 20 --out runs/more": "try more values",
    },
    "partition": {
        "fedsel partition --out classes.png": "draw which classes each client holds",
        "fedsel partition --set alpha=0.1 --out skewed.png": "draw another partition",
        "fedsel partition --grid alpha=0.1,1 --out panels.png": "draw several beside each other",
    },
    "methods": {
        "fedsel methods": "list the methods with their sources and costs",
        "fedsel methods oort --size 11173962": "show one method, and its costs for a model of this size",
        "fedsel methods --clients 1000 --cohort 50": "show the costs for more clients",
    },
    "check": {
        "fedsel check random": "check a method of fedsel",
        "fedsel check waiting:LongestWaiting": "check your own method",
    },
    "settings": {
        "fedsel settings": "list the settings with their defaults",
        "fedsel settings krum": "explain the settings with this word in them",
        "fedsel settings lr": "explain a setting",
    },
    "presets": {
        "fedsel presets": "list the presets",
        "fedsel presets paper-mnist": "show what a preset sets, and where it departs from its paper",
        "fedsel presets fedavg": "show FedAvg as published",
    },
    "provision": {
        "fedsel provision --server SERVER --clients 3 --out federation": "make a folder for each machine",
        "fedsel provision --add 2 --out federation": "add clients",
        "fedsel provision --revoke client-1 --out federation": "revoke a client",
    },
    "start": {
        "fedsel start server": "run the server",
        "fedsel start client-0 --data /data/mine.npz": "run a client with its own data",
        "fedsel start client-0": "run the client again; its folder keeps the settings",
    },
    "submit": {
        "fedsel submit federation/admin --cohort 2 --rounds 5": "submit a run to a federation, and wait until it ends",
        "fedsel submit federation/admin --strategy oort": "do the same with another method",
        "fedsel submit local --rounds 10": "simulate with Flower's own command",
    },
    "status": {
        "fedsel status federation/admin": "show the connected clients and the current round",
    },
    "sign": {
        "fedsel sign --out federation/admin/signing": "sign the app after a change",
    },
    "bench": {
        "fedsel bench round": "time a round beside plain PyTorch and Flower",
        "fedsel bench codec": "time the encoding of updates",
        "fedsel bench deploy": "time a round of real processes",
    },
    "claims": {
        "fedsel claims": "list the claims of the papers with their verdicts",
        "fedsel claims run divfl-random --out runs/claims": "run what is needed to decide a claim",
        "fedsel claims report --runs runs/claims --out runs/ledger": "write the ledger",
    },
}
"""Command -> its main command lines, at most three, with what each does; "fedsel" has those of the whole program."""
