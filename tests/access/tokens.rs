//! Tests of accepted and rejected JWTs.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use palimpsest_proto::context::v1::context_service_client::ContextServiceClient;
use palimpsest_tests::say::{append, user};
use palimpsest_tests::{Server, refused};
use rcgen::KeyPair;
use serde_json::{Value, json};
use tonic::Code;

use crate::world::{SOON, World, list, soon, watch, with};

/// A signing key of a token issuer.
pub(crate) struct Signer {
    id: &'static str,
    algorithm: Algorithm,
    key: EncodingKey,
    public: Vec<u8>,
}

impl Signer {
    pub(crate) fn new(id: &'static str, algorithm: Algorithm) -> Self {
        let of = match algorithm {
            Algorithm::ES256 => &rcgen::PKCS_ECDSA_P256_SHA256,
            Algorithm::EdDSA => &rcgen::PKCS_ED25519,
            _ => &rcgen::PKCS_RSA_SHA256,
        };
        let pair = KeyPair::generate_for(of).unwrap();
        let der = pair.serialize_der();
        let key = match algorithm {
            Algorithm::ES256 => EncodingKey::from_ec_der(&der),
            // Version 1 of PKCS#8, which has no public key after the private key.
            Algorithm::EdDSA => {
                EncodingKey::from_ed_der(&[&[0x30, 0x2e, 2, 1, 0], &der[5..48]].concat())
            }
            // PKCS#8 adds 26 bytes of header to the key that this function expects.
            _ => EncodingKey::from_rsa_der(&der[26..]),
        };
        let public = pair.public_key_raw().to_vec();
        Self {
            id,
            algorithm,
            key,
            public,
        }
    }

    fn jwk(&self) -> Value {
        let mut jwk = Jwk::from_encoding_key(&self.key, self.algorithm).unwrap();
        jwk.common.key_id = Some(self.id.to_owned());
        serde_json::to_value(jwk).unwrap()
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        let mut header = Header::new(self.algorithm);
        header.kid = Some(self.id.to_owned());
        encode(&header, claims, &self.key).unwrap()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "tokens are made for the time that it is"
)]
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

/// Returns valid claims with some values replaced. A null value removes a claim.
pub(crate) fn claims(change: &Value) -> Value {
    let mut claims = json!({
        "iss": "https://id.test", "aud": ["other", "palimpsest"], "sub": "agent",
        "exp": now() + 600, "nbf": now() - 5,
        "palimpsest_projects": ["p"], "palimpsest_rights": "palimpsest:read openid",
    });
    for (name, value) in change.as_object().unwrap() {
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value.clone(),
        }
    }
    claims
}

pub(crate) fn publish(world: &World, keys: &[&Signer]) {
    let mut keys: Vec<_> = keys.iter().map(|signer| signer.jwk()).collect();
    // An unknown key type must not invalidate the other keys of the set.
    keys.push(json!({"kty": "LATTICE", "kid": "future"}));
    let set = json!({"keys": keys});
    // A rename replaces the file in one step, so the server never reads a part of it.
    std::fs::write(world.at("new.json"), set.to_string()).unwrap();
    std::fs::rename(world.at("new.json"), world.at("jwks.json")).unwrap();
}

pub(crate) fn settings(world: &World) -> Vec<String> {
    vec![
        world.setting("auth.jwt.jwks_file", "jwks.json"),
        "auth.jwt.issuer=https://id.test".to_owned(),
        "auth.jwt.audience=palimpsest".to_owned(),
        "auth.jwt.clock_skew_s=30".to_owned(),
    ]
}

fn serve(world: &World) -> Server {
    world.serve(&settings(world))
}

#[tokio::test]
async fn a_token_is_accepted_only_if_every_claim_is_valid() {
    let world = World::new();
    let rsa = Signer::new("rsa", Algorithm::RS256);
    let ec = Signer::new("ec", Algorithm::ES256);
    let ed = Signer::new("ed", Algorithm::EdDSA);
    publish(&world, &[&rsa, &ec, &ed]);
    let server = serve(&world);
    let channel = server.channel().await;
    for signer in [&rsa, &ec, &ed] {
        let token = signer.sign(&claims(&json!({})));
        // The second call uses the cached verification.
        for _ in 0..2 {
            list(&channel, &token, "p").await.unwrap();
            let other = list(&channel, &token, "q").await.unwrap_err();
            refused(&other, Code::NotFound, "PROJECT_NOT_FOUND");
        }
    }
    // The token is expired, but within the allowed clock skew.
    list(
        &channel,
        &ec.sign(&claims(&json!({"exp": now() - 10}))),
        "p",
    )
    .await
    .unwrap();
    list(
        &channel,
        &ec.sign(&claims(&json!({"nbf": now() + 10}))),
        "p",
    )
    .await
    .unwrap();

    let wrong = [
        (json!({"exp": now() - 60}), "expired"),
        (json!({"exp": null}), "no expiry"),
        (json!({"nbf": now() + 60}), "not valid yet"),
        (json!({"nbf": "soon"}), "not a supported JWT"),
        (json!({"iss": "https://other.test"}), "issuer"),
        (json!({"iss": null}), "issuer"),
        (json!({"aud": "other"}), "audience"),
        (json!({"aud": null}), "audience"),
        (json!({"palimpsest_projects": []}), "no project"),
        (json!({"palimpsest_projects": "../x"}), "no project"),
        (json!({"palimpsest_rights": "openid"}), "no right"),
    ];
    for (change, says) in wrong {
        let token = ec.sign(&claims(&change));
        let status = list(&channel, &token, "p").await.unwrap_err();
        refused(&status, Code::Unauthenticated, "UNAUTHENTICATED");
        assert!(
            status.message().contains(says),
            "{change}: {}",
            status.message()
        );
    }
    let denied = ec.sign(&claims(&json!({"palimpsest_rights": ["write"]})));
    let status = list(&channel, &denied, "p").await.unwrap_err();
    refused(&status, Code::PermissionDenied, "PERMISSION_DENIED");
}

#[tokio::test]
async fn a_forged_token_is_rejected() {
    let world = World::new();
    let rsa = Signer::new("rsa", Algorithm::RS256);
    let ec = Signer::new("ec", Algorithm::ES256);
    publish(&world, &[&rsa, &ec]);
    let server = serve(&world);
    let channel = server.channel().await;
    let good = claims(&json!({}));

    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    // A token without a signature.
    let none = format!("{}.{}.", part(&json!({"alg": "none"})), part(&good));
    let hmac = |secret: &[u8]| {
        let mut header = Header::new(Algorithm::HS256);
        header.kid = Some("ec".to_owned());
        encode(&header, &good, &EncodingKey::from_secret(secret)).unwrap()
    };
    let stranger = Signer::new("ec", Algorithm::ES256).sign(&good);
    let unknown = Signer::new("nobody", Algorithm::ES256).sign(&good);
    // Names one key and the algorithm of another.
    let mut mixed = Signer::new("rsa", Algorithm::ES256);
    mixed.key = ec.key.clone();
    let real = ec.sign(&good);
    let (head, signature) = (
        real.split_once('.').unwrap().0,
        real.rsplit_once('.').unwrap().1,
    );
    let more = part(&claims(&json!({"palimpsest_projects": "*"})));
    // The header requires an extension that the server lacks, so the token must be rejected.
    let mut critical = Header::new(Algorithm::ES256);
    critical.kid = Some("ec".to_owned());
    critical.crit = Some(vec!["b64".to_owned()]);
    let forged = [
        none,
        // A server that trusts the algorithm of the header would use the public key as the secret of an HMAC.
        hmac(&ec.public),
        hmac(ec.jwk().to_string().as_bytes()),
        stranger,
        unknown,
        mixed.sign(&good),
        // Other claims with the signature of a valid token.
        format!("{head}.{more}.{signature}"),
        real[..real.len() - 4].to_owned(),
        encode(&critical, &good, &ec.key).unwrap(),
        "..".to_owned(),
    ];
    for token in forged {
        let status = list(&channel, &token, "p").await.unwrap_err();
        refused(&status, Code::Unauthenticated, "UNAUTHENTICATED");
        assert!(token.len() < 10 || !format!("{status:?}").contains(&token[..40]));
    }
    list(&channel, &real, "p").await.unwrap();
}

#[tokio::test]
async fn new_keys_of_the_issuer_are_loaded_and_old_ones_are_dropped() {
    let world = World::new();
    let (old, new) = (
        Signer::new("1", Algorithm::ES256),
        Signer::new("2", Algorithm::ES256),
    );
    publish(&world, &[&old]);
    let server = serve(&world);
    let channel = server.channel().await;
    let (first, second) = (old.sign(&claims(&json!({}))), new.sign(&claims(&json!({}))));
    list(&channel, &first, "p").await.unwrap();
    assert!(list(&channel, &second, "p").await.is_err());
    publish(&world, &[&old, &new]);
    soon("a new key", async || {
        list(&channel, &second, "p").await.is_ok()
    })
    .await;
    list(&channel, &first, "p").await.unwrap();
    publish(&world, &[&new]);
    // The cached verification must not outlive the key.
    soon("the end of a key", async || {
        list(&channel, &first, "p").await.is_err()
    })
    .await;
    list(&channel, &second, "p").await.unwrap();
    std::fs::write(world.at("jwks.json"), "{}").unwrap();
    let said = async || {
        server
            .log()
            .join("\n")
            .contains("failed to reload changed files")
    };
    soon("the error", said).await;
    list(&channel, &second, "p").await.unwrap();
}

#[tokio::test]
async fn a_watch_ends_with_the_key_that_signed_its_token() {
    let world = World::new();
    let (old, new) = (
        Signer::new("1", Algorithm::ES256),
        Signer::new("2", Algorithm::ES256),
    );
    publish(&world, &[&old, &new]);
    let server = serve(&world);
    let channel = server.channel().await;
    let rights = json!({"palimpsest_rights": ["read", "write"]});
    let (first, second) = (old.sign(&claims(&rights)), new.sign(&claims(&rights)));
    let session = "projects/p/sessions/s";
    let mut client = ContextServiceClient::new(channel.clone());
    let request = append(session, vec![user("x")]);
    client.append_messages(with(&first, request)).await.unwrap();
    let mut ends = watch(&channel, &first, session).await.unwrap();
    let mut stays = watch(&channel, &second, session).await.unwrap();
    publish(&world, &[&new]);
    let ended = tokio::time::timeout(SOON, async {
        loop {
            if let Err(status) = ends.message().await {
                return status;
            }
        }
    });
    refused(
        &ended.await.unwrap(),
        Code::Unauthenticated,
        "UNAUTHENTICATED",
    );
    // The second key is unchanged in the new file, so its calls and its stream continue.
    let request = append(session, vec![user("y")]);
    client
        .append_messages(with(&second, request))
        .await
        .unwrap();
    let mut revision = 0;
    while revision < 2 {
        let next = tokio::time::timeout(SOON, stays.message());
        let event = next.await.unwrap().unwrap().unwrap();
        revision = event.event.map_or(revision, |event| event.revision);
    }
}
