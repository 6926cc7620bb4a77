import base64

import pytest

from raylog.actors.plane.errors import AuthenticationFailed
from raylog.actors.plane.sasl.plain import PlainServer
from raylog.actors.plane.sasl.scram import HASHES, ScramClient, ScramServer, Verifier, verifier

# Of RFC 7677, section 3.
RFC_NONCE = "rOprNGfwEbeRWgbNEkqO"
RFC_MORE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
RFC_SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
RFC_TOKENS = (
    b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)


def server(
    user: str = "user", password: str = "pencil", mechanism: str = "SCRAM-SHA-256"
) -> ScramServer:
    kept = {user: verifier(mechanism, password)}
    return ScramServer(mechanism, kept.get)


def log_in(client: ScramClient, to: ScramServer) -> None:
    client.check(to.answer(client.final(to.answer(client.first()))))


def test_the_exchange_of_the_rfc_to_the_byte() -> None:
    kept = verifier("SCRAM-SHA-256", "pencil", RFC_SALT)
    to = ScramServer("SCRAM-SHA-256", {"user": kept}.get, RFC_MORE)
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", RFC_NONCE)
    first, challenge, final, outcome = RFC_TOKENS
    assert client.first() == first
    assert to.answer(first) == challenge
    assert client.final(challenge) == final
    assert not to.is_done
    assert to.answer(final) == outcome
    assert to.is_done
    assert to.user == "user"
    client.check(outcome)


@pytest.mark.parametrize("mechanism", list(HASHES))
@pytest.mark.parametrize("user", ["ann", "a=b,c", "=2C", "Ärger"])
def test_who_knows_the_password_is_let_in(mechanism: str, user: str) -> None:
    to = server(user, "pass, word=ü", mechanism)
    log_in(ScramClient(mechanism, user, "pass, word=ü"), to)
    assert to.is_done
    assert to.user == user


@pytest.mark.parametrize(
    ("user", "password"), [("user", "Pencil"), ("nobody", "pencil"), ("user", "")]
)
def test_a_wrong_user_and_a_wrong_password_fail_alike(user: str, password: str) -> None:
    to = server()
    with pytest.raises(AuthenticationFailed) as failed:
        log_in(ScramClient("SCRAM-SHA-256", user, password), to)
    assert failed.value.why == "the user or the password is wrong"
    assert not to.is_done


def test_an_unknown_user_has_the_same_salt_each_time_and_another_than_others() -> None:
    challenges = [server().answer(f"n,,n={user},r=x".encode()) for user in ("a", "a", "b")]
    salts = [challenge.split(b",")[1] for challenge in challenges]
    assert salts[0] == salts[1] != salts[2]
    assert len(base64.b64decode(salts[0][2:])) == 16


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\xff",
        b"n,,n=user",
        b"y,,n=user,r=x",
        b"p=tls-unique,,n=user,r=x",
        b"n,,n=us=er,r=x",
        b"n,a=other,n=user,r=x",
        b"n,,m=ext,n=user,r=x",
        b"n,,n=,r=x",
        b"n,,n=user,r=",
    ],
)
def test_a_first_message_that_is_none(token: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        server().answer(token)


def test_a_first_message_may_have_an_authorization_id_and_extensions() -> None:
    to = server()
    assert to.answer(b"n,a=user,n=user,r=x,tokenauth=true").startswith(b"r=x")


@pytest.mark.parametrize(
    "change",
    [
        (b"c=biws", b"c=eSws"),  # the client would have bound a channel, had the server said so
        (b",r=", b",r=x"),
        (b",p=", b",p=AAAA"),
        (b",p=", b",p=%"),
        (b",p=", b",q="),
    ],
)
def test_a_final_message_that_was_changed(change: tuple[bytes, bytes]) -> None:
    to = server()
    client = ScramClient("SCRAM-SHA-256", "user", "pencil")
    final = client.final(to.answer(client.first()))
    with pytest.raises(AuthenticationFailed):
        to.answer(final.replace(*change))
    assert not to.is_done


def test_a_proof_that_is_cut_is_none() -> None:
    to = server()
    client = ScramClient("SCRAM-SHA-256", "user", "pencil")
    final = client.final(to.answer(client.first()))
    head, _, proof = final.partition(b",p=")
    cut = base64.b64encode(base64.b64decode(proof)[:-1])
    with pytest.raises(AuthenticationFailed):
        to.answer(head + b",p=" + cut)


@pytest.mark.parametrize(
    "challenge",
    [
        b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=nonce-more,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4095",
        b"r=nonce-more,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=16385",
        b"r=nonce-more,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=999999999",
        b"r=nonce-more,s=%,i=4096",
        b"e=no",
    ],
)
def test_a_client_is_not_led_on_by_a_challenge_that_is_none(challenge: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        ScramClient("SCRAM-SHA-256", "user", "pencil", "nonce").final(challenge)


@pytest.mark.parametrize("outcome", [b"", b"v=", b"v=AAAA", b"e=other-error"])
def test_a_server_that_does_not_know_the_password_is_told_apart(outcome: bytes) -> None:
    to = server()
    client = ScramClient("SCRAM-SHA-256", "user", "pencil")
    client.final(to.answer(client.first()))
    with pytest.raises(AuthenticationFailed):
        client.check(outcome)


def test_what_is_kept_of_a_password_lets_nobody_log_in() -> None:
    kept = verifier("SCRAM-SHA-256", "pencil")
    assert isinstance(kept, Verifier)
    for known in (kept.stored_key.hex(), kept.server_key.hex()):
        with pytest.raises(AuthenticationFailed):
            log_in(ScramClient("SCRAM-SHA-256", "user", known), server())


@pytest.mark.parametrize("token", [b"\0ann\0secret", b"ann\0ann\0secret"])
def test_plain(token: bytes) -> None:
    to = PlainServer(lambda user, password: (user, password) == ("ann", "secret"))
    assert to.answer(token) == b""
    assert to.is_done
    assert to.user == "ann"


@pytest.mark.parametrize(
    "token",
    [b"", b"\0ann\0wrong", b"bob\0ann\0secret", b"ann\0secret", b"\0\0secret", b"\0ann\0secret\0"],
)
def test_plain_tokens_that_let_nobody_in(token: bytes) -> None:
    to = PlainServer(lambda user, password: password == "secret")
    with pytest.raises(AuthenticationFailed):
        to.answer(token)
    assert not to.is_done
