"""Words to build prompts from: each is one token, with a space before it, in the vocabularies people serve.

Checked in SmolLM2, Llama 2 (SentencePiece), Llama 3, Qwen 3, Gemma 3 and GPT-4o (o200k), so that a text of n words has
n tokens wherever it goes, give or take what the server adds around it. OPENERS are one token without a space, too.
"""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


OPENERS = _words("The A This That Some Every In On At From With When As After Before If So And But For Each")

DETERMINERS = _words("the a this that its our some every another each one your their my")

ADJECTIVES = _words(
    """old new small large great high low long short early late young strong dark light cold warm hot green blue red
    black white open free full empty deep wide clear quick slow quiet strange simple hard soft fine rich poor local
    single common public private real true whole safe dry wet bright clean heavy fast sharp tall broad flat thin thick
    sweet wild fresh plain round narrow gentle proud calm"""
)

NOUNS = _words(
    """river water city house street garden bridge school church market window door table letter book paper song story
    picture teacher doctor farmer king child woman man friend brother sister mother father family village road field
    forest mountain island ocean ship boat train station engine wheel machine clock fire stone metal glass wood wall
    floor roof kitchen bread fruit apple sugar milk coffee dinner bird horse dog cat fish tree flower leaf summer winter
    spring morning evening night day week month year hour moment north south east west wind rain snow storm cloud sky
    sun moon star earth world country town corner park hotel hospital library office company army captain soldier player
    leader writer artist singer voice word name number question answer reason idea plan game race team party dream hope
    power heart hand head eye face foot shoulder color coast valley lake hill farm path gate tower castle palace temple
    museum theater stage ball ring box bag key map board page line circle square edge shore"""
)

VERBS = _words(
    """sees finds holds takes brings keeps makes gives shows tells follows leaves meets reads opens builds carries
    changes covers draws feels gets helps knows likes loves moves needs passes plays pulls reaches runs saves sends sets
    starts stops turns uses wants watches wins works writes saw found held took brought kept made gave showed told
    followed left met built changed covered drew felt filled got helped heard joined knew liked loved moved needed
    passed played pulled reached sent started stopped turned used wanted watched won wrote lost bought sold caught broke
    chose drove threw"""
)

LINKS = _words(
    """near under over behind beside beyond across along around above below between against through toward inside
    outside before after without with from into upon within about and but while because until since like for"""
)

SENTENCE = (ADJECTIVES, NOUNS, VERBS, DETERMINERS, ADJECTIVES, NOUNS, LINKS, DETERMINERS, NOUNS)
"""After an opener: where words of which kind may stand in a sentence."""
