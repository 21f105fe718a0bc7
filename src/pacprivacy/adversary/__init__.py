"""The optimal adversary on a finite pool, in closed form.

An attacker who knows the universe, pool, mechanism and noise law can do no better than the
posterior computed here, so its success is a certificate and not the result of one attack.
"""

from pacprivacy.adversary.advantage import (
    advantage_room as advantage_room,
    has_line_advantage as has_line_advantage,
    line_advantage_posteriors as line_advantage_posteriors,
)
from pacprivacy.adversary.betting import (
    STORED_UNITS as STORED_UNITS,
    DrawnInfluence as DrawnInfluence,
    InfluenceWager as InfluenceWager,
)
from pacprivacy.adversary.exact import (
    DEFAULT_GAMMA as DEFAULT_GAMMA,
    FALSE_POSITIVES as FALSE_POSITIVES,
    Direction as Direction,
    InformationDivergence as InformationDivergence,
    MembershipRisk as MembershipRisk,
    SideKnowledge as SideKnowledge,
    TradeOff as TradeOff,
    exact_information as exact_information,
    information_divergences as information_divergences,
    information_draws as information_draws,
    membership_draws as membership_draws,
    membership_risk as membership_risk,
    membership_trade_off as membership_trade_off,
    noiseless_information_divergences as noiseless_information_divergences,
    noiseless_membership as noiseless_membership,
    side_knowledge as side_knowledge,
)
from pacprivacy.adversary.heat import (
    RESERVE as RESERVE,
    Balances as Balances,
    Heat as Heat,
    balance_advantage as balance_advantage,
    first_balance as first_balance,
    heat_by_information as heat_by_information,
    heat_charges as heat_charges,
    heat_draws as heat_draws,
    heat_potential as heat_potential,
    heat_room as heat_room,
    heat_slope as heat_slope,
    noiseless_heat_charges as noiseless_heat_charges,
)
from pacprivacy.adversary.influence import (
    GROUP_SIZES as GROUP_SIZES,
    LARGE_MOVE as LARGE_MOVE,
    LARGE_MOVE_SHARE as LARGE_MOVE_SHARE,
    SESSION_SLACK as SESSION_SLACK,
    AverageRisk as AverageRisk,
    Clocks as Clocks,
    InfluenceProof as InfluenceProof,
    InfluenceRisk as InfluenceRisk,
    average_gains as average_gains,
    average_hits as average_hits,
    cap_success as cap_success,
    influence_advantage as influence_advantage,
    influence_hits as influence_hits,
    influence_parameter as influence_parameter,
    influence_risk as influence_risk,
    influence_success as influence_success,
    session_cap as session_cap,
    session_risk as session_risk,
)
from pacprivacy.adversary.quantile_influence import (
    QuantileInfluence as QuantileInfluence,
    QuantileWindow as QuantileWindow,
)
from pacprivacy.adversary.view_and_belief import (
    Belief as Belief,
    Floats as Floats,
    View as View,
    ViewTilts as ViewTilts,
    draw_view_blocks as draw_view_blocks,
    draw_views as draw_views,
    make_view as make_view,
    unit_beliefs_of_view as unit_beliefs_of_view,
    view_log_ratios as view_log_ratios,
    view_posterior as view_posterior,
)
from pacprivacy.adversary.vote_balances import (
    WIDEST_ANSWER as WIDEST_ANSWER,
    WIDEST_VOTE as WIDEST_VOTE,
    WORST_VOTE as WORST_VOTE,
    VoteBalances as VoteBalances,
    vote_path_charges as vote_path_charges,
)
