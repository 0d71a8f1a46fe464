"""Small contracts for tests, and answers about them that pass every check."""

from examples.contract_review.clause_library import ClauseKind
from examples.contract_review.outlining import outline
from examples.contract_review.retrieval import retrieve
from examples.contract_review.values import (
    Document,
    Material,
    Obligation,
    Obligations,
    Outline,
    Recommendation,
    Risk,
    Risks,
    Severity,
    Source,
    Summary,
)

ENGLISH = """MASTER SERVICES AGREEMENT

This agreement is made between Northwind Traders (the "Provider") and Contoso (the "Customer").

1. FEES

The Customer shall pay each invoice within thirty days. All fees are non-refundable.

2. LIMITATION OF LIABILITY

In no event shall the Provider be liable for indirect, incidental or consequential damages.

3. TERMINATION

The Provider may terminate this agreement at any time without notice in its sole discretion.

4. GOVERNING LAW

This agreement is governed by the laws of Norway, and its courts have jurisdiction.

5. CONFIDENTIALITY

Each party must keep the confidential information of the other party secret for three years.
"""

CHINESE = """软件服务合同

甲方：星河科技有限公司。乙方：远山贸易有限公司。双方经协商一致，订立本合同。

第一条 费用

乙方应当在收到发票后三十日内支付全部服务费用，逾期须承担违约金。

第二条 责任限制

甲方对任何间接损失不承担责任，赔偿责任不超过最近十二个月的服务费用。

第三条 保密

双方必须对在履行本合同过程中知悉的商业秘密予以保密，有效期为三年。

第四条 争议解决

因本合同发生的争议，双方应当协商解决；协商不成的，提交甲方所在地仲裁委员会仲裁。

第五条 合同变更

甲方有权随时修改本合同条款，乙方继续使用服务即视为接受。
"""


def document(
    text: str = ENGLISH, *, title: str = "agreement.txt", complete: bool = True
) -> Document:
    """A document as the first step would hand it on."""
    source = Source(uri=f"file:///{title}", title=title, digest="sha256:0", complete=complete)
    return Document(source=source, text=text)


def prepared(text: str = ENGLISH, *, complete: bool = True) -> tuple[Material, Outline]:
    """What the first analysing step receives."""
    read = document(text, complete=complete)
    return retrieve(read), outline(read)


GOOD_OBLIGATIONS = Obligations(
    parties=("Northwind Traders", "Contoso"),
    term="not stated",
    obligations=(
        Obligation(
            party="Contoso",
            duty="pay in time",
            quote="The Customer shall pay each invoice within thirty days.",
        ),
    ),
)
GOOD_RISKS = Risks(
    risks=(
        Risk(
            clause=ClauseKind.LIABILITY_CAP,
            severity=Severity.HIGH,
            reason="losses stay with the customer",
            quote="in no event shall the Provider be  liable for indirect",
        ),
    )
)
GOOD_SUMMARY = Summary(
    summary="One-sided.",
    rating=Severity.HIGH,
    recommendation=Recommendation.NEGOTIATE,
    conditions=("a mutual cap",),
)
