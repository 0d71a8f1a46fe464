"""The phrases the model server chooses from, in English and Chinese."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wording:
    """Templates of one language."""

    duties: tuple[str, ...]
    reasons: tuple[str, ...]
    summaries: tuple[str, ...]
    closings: tuple[str, ...]
    no_term: tuple[str, ...]
    other_parties: tuple[str, str]
    read_the_rest: str


_ENGLISH = Wording(
    duties=(
        "{party} is bound here: {gist}",
        "A duty of {party}: {gist}",
        "{party} has to observe this: {gist}",
        "For {party} this means: {gist}",
        "Demanded of {party}: {gist}",
    ),
    reasons=(
        "Here {concern}: {gist}",
        "It is worth a second look, since {concern} ({gist})",
        "Compared with what is usual, {concern}: {gist}",
        "Note that {concern}. The wording is: {gist}",
        "The reader should know that {concern}: {gist}",
    ),
    summaries=(
        "{title} was reviewed: {high} high, {medium} medium and {low} low risks were found.",
        "The review of {title} lists {high} serious, {medium} moderate and {low} minor points.",
        "In {title}, {high} clauses are far from usual, {medium} somewhat, {low} slightly.",
        "{title} departs from the usual in {high} grave, {medium} middling and {low} small ways.",
    ),
    closings=(
        "The quoted clauses are where to begin.",
        "Each point is quoted so that it can be checked.",
        "A person should read the quoted sentences before deciding.",
        "The obligations listed come into force with acceptance.",
    ),
    no_term=(
        "The passages state no term.",
        "No term is stated in what was read.",
        "The contract does not say how long it lasts.",
    ),
    other_parties=("the provider", "the user"),
    read_the_rest="have the part that was not read reviewed as well",
)

_CHINESE = Wording(
    duties=(
        "{party}的义务：{gist}",
        "{party}应遵守：{gist}",
        "本条对{party}的要求为：{gist}",
        "{party}须注意：{gist}",
    ),
    reasons=(
        "{concern}：{gist}",
        "值得留意，{concern}（{gist}）",
        "与通常约定相比，{concern}；条文为：{gist}",
        "请注意{concern}，原文为：{gist}",
    ),
    summaries=(
        "已审阅{title}：发现高风险{high}项、中风险{medium}项、低风险{low}项。",
        "对{title}的审阅列出严重问题{high}项、一般问题{medium}项、轻微问题{low}项。",
        "{title}中有{high}处明显偏离惯例，{medium}处有所偏离，{low}处略有偏离。",
    ),
    closings=("建议先看所引条款。", "每一点均附原文以便核对。", "作出决定前请由专人阅读所引句子。"),
    no_term=("所读部分未约定期限。", "合同未写明期限。"),
    other_parties=("服务提供方", "使用方"),
    read_the_rest="请对未读部分另行审阅",
)

WORDING = {"en": _ENGLISH, "zh": _CHINESE}
