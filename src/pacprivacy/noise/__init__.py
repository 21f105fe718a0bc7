"""From a budget and the outputs on every subset to a noise plan."""

from pacprivacy.noise.answers import (
    LEAST_NATS as LEAST_NATS,
    UNITS as UNITS,
    AnswerNoise as AnswerNoise,
    answer_vote_charge as answer_vote_charge,
    answer_vote_gap as answer_vote_gap,
    plan_answer as plan_answer,
    usable_answer_nats as usable_answer_nats,
)
from pacprivacy.noise.average_plan import (
    AveragePlan as AveragePlan,
    plan_average as plan_average,
    rounding_of as rounding_of,
)
from pacprivacy.noise.descent_plan import (
    LEAST_STEPS_PER_STD as LEAST_STEPS_PER_STD,
    DescentErrors as DescentErrors,
    DescentPlan as DescentPlan,
    DescentTranscript as DescentTranscript,
    DescentUnits as DescentUnits,
    StepNoise as StepNoise,
    plan_descent as plan_descent,
    simulate_descent_errors as simulate_descent_errors,
    split_descent_units as split_descent_units,
)
from pacprivacy.noise.iid import (
    Boxed as Boxed,
    Empirical as Empirical,
    IidRule as IidRule,
    iid_log_det as iid_log_det,
)
from pacprivacy.noise.lattice import (
    MAX_UNITS_PER_SCALE as MAX_UNITS_PER_SCALE,
    MAX_UNITS_PER_STD as MAX_UNITS_PER_STD,
    lattice_bernoulli_enclosed as lattice_bernoulli_enclosed,
    lattice_bernoulli_exp as lattice_bernoulli_exp,
    sample_discrete_gaussian as sample_discrete_gaussian,
    sample_discrete_laplace as sample_discrete_laplace,
    uniform_lattice_integers as uniform_lattice_integers,
)
from pacprivacy.noise.plan import (
    AxisFrame as AxisFrame,
    Kind as Kind,
    NoisePlan as NoisePlan,
    Observation as Observation,
    PlanProblem as PlanProblem,
    Spread as Spread,
    axis_spread_variances as axis_spread_variances,
    distinct_plan_outputs as distinct_plan_outputs,
    log_det_of_plan as log_det_of_plan,
    log_det_of_points as log_det_of_points,
    make_plan as make_plan,
    spread_of as spread_of,
    waterfill as waterfill,
    weighted_spread_mean as weighted_spread_mean,
)
from pacprivacy.noise.proof import (
    Claim as Claim,
    Proof as Proof,
    prove_rescaled as prove_rescaled,
    prove_shape as prove_shape,
)
from pacprivacy.noise.rules import (
    RULES as RULES,
    AnyRule as AnyRule,
    AutoConfidence as AutoConfidence,
    Exact as Exact,
    Protect as Protect,
    Rule as Rule,
    Shaped as Shaped,
    as_rule as as_rule,
    calibrate as calibrate,
    check_rule_feasible as check_rule_feasible,
    contrasts as contrasts,
    propose_rule_noise as propose_rule_noise,
    weigh as weigh,
)
from pacprivacy.noise.shapes import Shape as Shape, exact_shapes as exact_shapes
from pacprivacy.noise.sum_plan import (
    SumPlan as SumPlan,
    plan_declared as plan_declared,
    plan_sums as plan_sums,
)
from pacprivacy.noise.unit_lattice import charge_integers as charge_integers
