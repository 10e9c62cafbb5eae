"""A treebank to try things on: some dozen English sentences, made up and annotated here.

Universal Dependencies in short: ``word/UPOS/head/relation``, a sentence per line. Too small to
learn English from; large enough to see every command work.
"""

from __future__ import annotations

from minfer.parsing.conllu import Sentence

_TREES = """
The/DET/2/det dog/NOUN/3/nsubj sleeps/VERB/0/root ./PUNCT/3/punct
A/DET/2/det cat/NOUN/3/nsubj sees/VERB/0/root the/DET/5/det bird/NOUN/3/obj ./PUNCT/3/punct
The/DET/3/det old/ADJ/3/amod woman/NOUN/4/nsubj reads/VERB/0/root a/DET/6/det book/NOUN/4/obj ./PUNCT/4/punct
Birds/NOUN/2/nsubj sing/VERB/0/root in/ADP/5/case the/DET/5/det garden/NOUN/2/obl ./PUNCT/2/punct
She/PRON/2/nsubj opened/VERB/0/root the/DET/5/det small/ADJ/5/amod window/NOUN/2/obj ./PUNCT/2/punct
He/PRON/2/nsubj gave/VERB/0/root the/DET/4/det child/NOUN/2/iobj an/DET/6/det apple/NOUN/2/obj ./PUNCT/2/punct
The/DET/2/det children/NOUN/3/nsubj play/VERB/0/root with/ADP/6/case a/DET/6/det ball/NOUN/3/obl ./PUNCT/3/punct
I/PRON/2/nsubj saw/VERB/0/root the/DET/4/det man/NOUN/2/obj with/ADP/7/case the/DET/7/det telescope/NOUN/2/obl ./PUNCT/2/punct
I/PRON/2/nsubj saw/VERB/0/root the/DET/4/det man/NOUN/2/obj with/ADP/7/case the/DET/7/det hat/NOUN/4/nmod ./PUNCT/2/punct
They/PRON/3/nsubj often/ADV/3/advmod walk/VERB/0/root to/ADP/6/case the/DET/6/det river/NOUN/3/obl ./PUNCT/3/punct
The/DET/2/det house/NOUN/6/nsubj on/ADP/5/case the/DET/5/det hill/NOUN/2/nmod burned/VERB/0/root yesterday/ADV/6/advmod ./PUNCT/6/punct
We/PRON/2/nsubj drink/VERB/0/root tea/NOUN/2/obj and/CCONJ/5/cc coffee/NOUN/3/conj ./PUNCT/2/punct
The/DET/2/det teacher/NOUN/3/nsubj sings/VERB/0/root and/CCONJ/6/cc the/DET/6/det child/NOUN/7/nsubj dances/VERB/3/conj ./PUNCT/3/punct
The/DET/2/det book/NOUN/5/nsubj is/AUX/5/cop very/ADV/5/advmod old/ADJ/0/root ./PUNCT/5/punct
My/PRON/2/nmod:poss brother/NOUN/5/nsubj is/AUX/5/cop a/DET/5/det doctor/NOUN/0/root ./PUNCT/5/punct
She/PRON/2/nsubj wants/VERB/0/root to/PART/4/mark buy/VERB/2/xcomp a/DET/6/det house/NOUN/4/obj ./PUNCT/2/punct
He/PRON/2/nsubj says/VERB/0/root that/SCONJ/6/mark the/DET/5/det train/NOUN/6/nsubj comes/VERB/2/ccomp late/ADV/6/advmod ./PUNCT/2/punct
When/SCONJ/3/mark it/PRON/3/nsubj rains/VERB/6/advcl ,/PUNCT/3/punct we/PRON/6/nsubj stay/VERB/0/root at/ADP/8/case home/NOUN/6/obl ./PUNCT/6/punct
The/DET/2/det woman/NOUN/6/nsubj who/PRON/4/nsubj lives/VERB/2/acl:relcl here/ADV/4/advmod writes/VERB/0/root poems/NOUN/6/obj ./PUNCT/6/punct
The/DET/2/det letter/NOUN/4/nsubj:pass was/AUX/4/aux:pass written/VERB/0/root by/ADP/7/case a/DET/7/det friend/NOUN/4/obl ./PUNCT/4/punct
Did/AUX/3/aux you/PRON/3/nsubj find/VERB/0/root the/DET/5/det key/NOUN/3/obj ?/PUNCT/3/punct
Where/ADV/4/advmod does/AUX/4/aux she/PRON/4/nsubj live/VERB/0/root ?/PUNCT/4/punct
Close/VERB/0/root the/DET/3/det door/NOUN/1/obj ,/PUNCT/5/punct please/INTJ/1/discourse !/PUNCT/1/punct
Two/NUM/3/nummod black/ADJ/3/amod horses/NOUN/4/nsubj stand/VERB/0/root under/ADP/7/case the/DET/7/det tree/NOUN/4/obl ./PUNCT/4/punct
Nobody/PRON/2/nsubj knows/VERB/0/root the/DET/4/det answer/NOUN/2/obj to/ADP/7/case this/DET/7/det question/NOUN/4/nmod ./PUNCT/2/punct
Anna/PROPN/4/nsubj and/CCONJ/3/cc Peter/PROPN/1/conj travel/VERB/0/root to/ADP/6/case Rome/PROPN/4/obl in/ADP/8/case May/PROPN/4/obl ./PUNCT/4/punct
The/DET/2/det cat/NOUN/3/nsubj chased/VERB/0/root the/DET/5/det mouse/NOUN/3/obj that/PRON/7/nsubj ate/VERB/5/acl:relcl the/DET/9/det cheese/NOUN/7/obj ./PUNCT/3/punct
It/PRON/3/nsubj was/AUX/3/cop cold/ADJ/0/root ,/PUNCT/7/punct but/CCONJ/7/cc she/PRON/7/nsubj swam/VERB/3/conj in/ADP/10/case the/DET/10/det lake/NOUN/7/obl ./PUNCT/3/punct
The/DET/2/det boy/NOUN/4/nsubj can/AUX/4/aux play/VERB/0/root the/DET/6/det piano/NOUN/4/obj well/ADV/4/advmod ./PUNCT/4/punct
You/PRON/4/nsubj should/AUX/4/aux not/PART/4/advmod eat/VERB/0/root the/DET/7/det green/ADJ/7/amod apples/NOUN/4/obj ./PUNCT/4/punct
A/DET/2/det friend/NOUN/7/nsubj of/ADP/5/case my/PRON/5/nmod:poss sister/NOUN/2/nmod often/ADV/7/advmod visits/VERB/0/root us/PRON/7/obj ./PUNCT/7/punct
The/DET/2/det river/NOUN/3/nsubj flows/VERB/0/root through/ADP/6/case the/DET/6/det valley/NOUN/3/obl to/ADP/9/case the/DET/9/det sea/NOUN/3/obl ./PUNCT/3/punct
Because/SCONJ/4/mark he/PRON/4/nsubj was/AUX/4/cop tired/ADJ/8/advcl ,/PUNCT/4/punct the/DET/7/det driver/NOUN/8/nsubj slept/VERB/0/root ./PUNCT/8/punct
She/PRON/2/nsubj heard/VERB/0/root a/DET/4/det story/NOUN/2/obj yesterday/ADV/2/advmod that/PRON/7/nsubj frightened/VERB/4/acl:relcl her/PRON/7/obj ./PUNCT/2/punct
The/DET/2/det guests/NOUN/3/nsubj ate/VERB/0/root bread/NOUN/3/obj ,/PUNCT/6/punct cheese/NOUN/4/conj and/CCONJ/8/cc fruit/NOUN/4/conj ./PUNCT/3/punct
The/DET/2/det painter/NOUN/3/nsubj painted/VERB/0/root the/DET/5/det wall/NOUN/3/obj blue/ADJ/3/xcomp ./PUNCT/3/punct
In/ADP/2/case winter/NOUN/6/obl the/DET/4/det days/NOUN/6/nsubj are/AUX/6/cop short/ADJ/0/root ./PUNCT/6/punct
Old/ADJ/2/amod houses/NOUN/3/nsubj need/VERB/0/root care/NOUN/3/obj ./PUNCT/3/punct
The/DET/3/det young/ADJ/3/amod doctor/NOUN/5/nsubj quickly/ADV/5/advmod closed/VERB/0/root the/DET/7/det door/NOUN/5/obj of/ADP/10/case the/DET/10/det house/NOUN/7/nmod ./PUNCT/5/punct
He/PRON/2/nsubj reads/VERB/0/root the/DET/4/det letter/NOUN/2/obj of/ADP/7/case a/DET/7/det friend/NOUN/4/nmod in/ADP/10/case the/DET/10/det garden/NOUN/2/obl ./PUNCT/2/punct
"""  # noqa: E501


def tiny_treebank() -> list[Sentence]:
    """The sentences."""
    sentences = []
    for tree in _TREES.strip().splitlines():
        forms, upos, heads, deprels = zip(*(word.split("/") for word in tree.split(" ")))
        plain = Sentence.from_text(" ".join(forms))
        sentences.append(plain.with_parse([int(h) for h in heads], deprels, upos=upos))
    return sentences
