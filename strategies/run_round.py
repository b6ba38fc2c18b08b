"""One round, from the connected clients to its record: HeteRo-Select's Algorithm 1 with exchangeable parts.

`run_round` runs a whole round. Flower's legacy server calls its two halves, `plan_round` and `complete_round`, and asks
the clients between them (see `strategies.base`).
"""

import logging
import time
from collections.abc import Mapping

import numpy as np

from fedsel_app.messages.instructions import LocalTestInstruction
from fedsel_app.records.schema import RoundRecord
from fedsel_app.seeds import Purpose, stream
from strategies.aggregation.calibration import next_statistics
from strategies.participation.intermediate_round import IntermediateRound
from strategies.roster import Outcome
from strategies.round import method_checks as checks
from strategies.round.clients import replies_among
from strategies.round.deadline import accept_replies, over_selected_count, simulated_dropouts
from strategies.round.federation import Answer, Federation, Until, sent_model
from strategies.round.replies import Replies, warn_of_few_updates, warn_of_zero_weights
from strategies.round.reported_values import read_tests, tested_loss
from strategies.round_record import record_client_tests, record_evaluation, record_training
from strategies.run import Plan, RunningMethod

LOGGER = logging.getLogger("fedsel")


def run_rounds(strategy: RunningMethod, federation: Federation) -> None:
    """Run the remaining rounds of a run with the clients of `federation`."""
    run = strategy.run
    for number in range(run.completed + 1, run.rounds.most + 1):
        if not run.ended:
            run_round(strategy, federation, number)


def run_round(strategy: RunningMethod, federation: Federation, number: int) -> RoundRecord:
    """Run round `number` and return its record."""
    run = strategy.run
    plan = plan_round(strategy, federation, number)
    if plan is not None:
        complete_round(strategy, plan, run.clients.ask(plan.instructions, plan.model, plan.until))
    if not run.ended:
        evaluate_model(strategy)
        if tests := local_tests(strategy):
            record_tests(strategy, run.clients.ask(tests, sent_model(run.parameters, run.buffers)))
        close_round(strategy)
    return run.record


def plan_round(strategy: RunningMethod, federation: Federation, number: int) -> Plan | None:
    """First half: enrol new clients, probe losses, select the cohort and write its instructions.

    Returns None if there is no cohort; the model then does not change. The run ends if the method has no round left for
    the connected clients.
    """
    run, roster, context = strategy.run, strategy.roster, strategy.context
    run.started_s = time.perf_counter()
    label_count_bytes = run.prober.enrol(federation, number, wait=number == run.completed + 1)
    if run.rounds.over(number - 1):
        run.end()
        return None
    round_info = run.rounds.info(number)
    record = run.record = RoundRecord(number, round_info.method_round, round_info.iteration)
    global_model = sent_model(run.parameters, run.buffers)
    model = run.server.solver.with_control(global_model)
    if context.surrogate is not None:
        run.participation.observe(number, context.surrogate(run.parameters, run.buffers))

    needs_losses = strategy.needs(strategy.config).loss_probe
    intermediate = None
    if run.participation.searches(round_info):
        probed = roster.ids if needs_losses else np.zeros(0, np.int64)
        probe = run.prober.measure(round_info, probed, global_model, label_count_bytes)
        intermediate = IntermediateRound(
            round_info,
            strategy,
            probe,
            run.instructions,
            model,
            run.clients,
            run.collector,
            run.server,
            run.parameters,
            run.buffers,
            record,
        )
        run.participation.before(intermediate)
    count = min(run.participation.cohort(round_info, roster.ids.size), roster.ids.size)
    if intermediate is not None and count == roster.ids.size:
        candidates = roster.ids
    else:
        rng = stream(context.run.seed, Purpose.CANDIDATES, number)
        candidates = checks.candidates(strategy, roster, round_info, count, rng)
    if intermediate is None:
        probe = run.prober.measure(round_info, candidates, global_model, label_count_bytes)
        count = min(count, roster.ids.size)
    # A method sees only the losses of its own candidates, even if all clients were probed.
    roster.losses[:] = probe.losses_of(candidates)
    record.cohort, record.failures = count, probe.failures
    if not count:
        LOGGER.warning("Round %d: no client is connected; the model does not change.", number)
        return None

    over_selected = over_selected_count(count, context.replies.over_selection, roster.ids.size)
    rng = stream(context.run.seed, Purpose.SELECT, number)
    selection = checks.select(strategy, roster, round_info, over_selected, rng)
    searched = intermediate is not None and run.participation.aggregates
    statistics = run.buffers.size > 0 and (searched or context.calibration.of_training)
    instructions, record.kept_fraction = run.instructions.instruct(
        selection, round_info, statistics=statistics, local_epochs=run.participation.epochs(round_info)
    )
    wanted = count if over_selected > count else selection.clients.size
    until = Until(wanted, context.replies.round_deadline_s) if context.links.measured else Until()
    return Plan(round_info, probe, selection, instructions, model, until, wanted, intermediate)


def complete_round(strategy: RunningMethod, plan: Plan, answers: Mapping[int, Answer]) -> None:
    """Second half: check the replies, aggregate, step the server, calibrate BatchNorm, update the method, record."""
    run, roster, context, number = strategy.run, strategy.roster, strategy.context, plan.round_info.number
    replies = _accepted(strategy, plan, answers)
    warn_of_few_updates(replies.clients.size, number, context.aggregation)
    warn_of_zero_weights(replies.clients, number, plan.selection, context.aggregation.weighting)
    if plan.intermediate is not None:
        run.participation.after(plan.intermediate, replies)
    started_from = run.parameters
    step = run.server.step(started_from, plan.selection, replies, roster.examples)
    roster.record_round(
        number, plan.selection.clients, replies.clients, replies.losses, step.taken, failed=replies.broken
    )
    run.parameters = step.parameters
    run.buffers, calibration_bytes = next_statistics(
        run.clients, replies, step.parameters, run.buffers, number, context, roster.examples
    )
    strategy.learn(
        Outcome(
            plan.round_info,
            plan.selection,
            started_from,
            replies.clients,
            step.updates,
            step.aggregate,
            replies.losses,
            replies.reports,
            replies.failed,
        )
    )
    record_training(strategy, plan, replies, step, calibration_bytes)


def evaluate_model(strategy: RunningMethod) -> None:
    """Evaluate the global model on the server's test set, every `eval-every` rounds and in the last."""
    run = strategy.run
    if not run.rounds.evaluates(run.record.round):
        return
    if (result := strategy.context.evaluate(run.parameters, run.buffers)) is not None:
        record_evaluation(run.record, result)
        run.best.offer(result.accuracy, run.parameters, run.buffers)


def local_tests(strategy: RunningMethod) -> dict[int, LocalTestInstruction]:
    """Instructions to test the model on the clients' own test parts: with `client-eval`, to all connected clients."""
    run = strategy.run
    tested = strategy.context.evaluation.client_eval and run.rounds.evaluates(run.record.round)
    return dict.fromkeys(run.clients.nodes, LocalTestInstruction(run.record.round)) if tested else {}


def record_tests(strategy: RunningMethod, answers: Mapping[int, Answer]) -> None:
    """Record the clients' own tests, and pass them to the participation policy."""
    tests = read_tests(replies_among(answers, strategy.run.record.round, "failed to test"), strategy.context)
    strategy.run.participation.observe(strategy.run.record.round + 1, *tested_loss(tests))
    record_client_tests(strategy.run.record, tests, strategy.context.recorder)


def close_round(strategy: RunningMethod) -> None:
    """Write the record. Then end the run after its last round or at the target, or save a checkpoint."""
    run, evaluation = strategy.run, strategy.context.evaluation
    record, every = run.record, strategy.context.records.checkpoint_every
    record.wall_s, record.epsilon = time.perf_counter() - run.started_s, run.server.epsilon
    strategy.context.recorder.round(record)
    reached = evaluation.stop_at_target and (record.accuracy or 0.0) >= evaluation.target
    if reached or run.rounds.over(record.round):
        run.end()
    elif every and record.round % every == 0:
        run.checkpoint()


def _accepted(strategy: RunningMethod, plan: Plan, answers: Mapping[int, Answer]) -> Replies:
    """The replies to aggregate, decoded and checked, without failures, dropouts and late replies."""
    run, context, number = strategy.run, strategy.context, plan.round_info.number
    answered = replies_among(answers, number, "failed")
    for client in simulated_dropouts(plan.selection.clients, number, context):
        answered.pop(client, None)
    replies = run.collector.collect(answered, plan.instructions)
    arrived_s = np.array([answered[client].arrived_s for client in replies.clients.tolist()])
    finish_s = context.links.finish_s(replies.work(strategy.roster, np.zeros(0)), arrived_s)
    return accept_replies(replies, finish_s, plan.wanted, context.replies)
