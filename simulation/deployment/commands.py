"""Commands of `fedsel` around a deployment on separate machines: certificates and signatures."""

import argparse

from fedsel_app.config.arguments import Subparsers, folder, positive


def certificates(arguments: argparse.Namespace) -> int:
    """`fedsel certificates`: make TLS certificates and client keys for separate machines."""
    from simulation.deployment.certificates import make_certificates

    made = make_certificates(arguments.folder, arguments.server, arguments.clients)
    print(
        f"Made in {made.folder}: ca.crt for everybody; server.crt and server.key for the server; of clients/, client-N "
        "for client N and the .pub files for the server. Copy ca.key nowhere."
    )
    return 0


def sign(arguments: argparse.Namespace) -> int:
    """`fedsel sign`: sign the app in this checkout, for SuperNodes that trust who does."""
    from simulation.deployment.local_deployment import app_folder
    from simulation.deployment.signing_key import signing_key
    from simulation.flower_internals.app_signature import sign_app

    signed = sign_app(app_folder(), arguments.folder, signing_key(arguments.folder))
    print(
        f"Signed the app with SHA-256 {signed} in {arguments.folder}: trusted.yaml is for the clients, signatures.json "
        "for the SuperLink's FLWR_HOME, and key for nobody else. An app that changes must be signed again."
    )
    return 0


def register(commands: Subparsers) -> None:
    """Add the commands to the parser's."""
    keys = commands.add_parser("certificates", help="TLS certificates and client keys for separate machines")
    keys.add_argument("--server", required=True, action="append", metavar="HOST", help="its name or IP address")
    keys.add_argument("--clients", required=True, type=positive, metavar="N")
    keys.add_argument("--out", dest="folder", required=True, type=folder, metavar="DIR")
    keys.set_defaults(call=certificates)

    signed = commands.add_parser("sign", help="sign this checkout's app, for clients that import no other")
    signed.add_argument("--out", dest="folder", required=True, type=folder, metavar="DIR", help="made with a key")
    signed.set_defaults(call=sign)
