//! Measures the cost of authentication and of TLS for a call. The same client calls all servers in alternating rounds.
//!
//! `cargo test -p palimpsest-tests --test access cost -- --ignored --nocapture`

#![expect(clippy::disallowed_methods, reason = "it measures real time")]

use std::time::{Duration, Instant};

use jsonwebtoken::Algorithm;
use palimpsest_tests::Server;
use serde_json::json;
use tonic::transport::Channel;

use crate::tokens::{Signer, claims, publish, settings};
use crate::world::{Authority, World, list, tls};

const CALLS: u32 = 1_000;
const ROUNDS: usize = 9;

/// Returns the processor time of the server so far. Other load on the machine does not affect this figure.
fn busy(server: &Server) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.pid())).unwrap();
    let fields: Vec<_> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    // After the name of the process, the fields 11 and 12 are the user and the system time.
    let ticks = |at: usize| fields[at].parse::<u64>().unwrap();
    // Linux reports processor time in ticks of 10 ms.
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

async fn round(channel: &Channel, credentials: &[String]) -> Duration {
    let began = Instant::now();
    for credential in credentials.iter().cycle().take(CALLS as usize) {
        list(channel, credential, "p").await.unwrap();
    }
    began.elapsed() / CALLS
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it measures, and proves nothing"]
async fn measure_authentication_cost_per_call() {
    let world = World::new();
    let key = world.key("p", "read");
    let signers = [Algorithm::RS256, Algorithm::ES256].map(|of| Signer::new("1", of));
    let [rsa, ec] = &signers;
    let private = World::new();
    std::fs::copy(world.at("keys.toml"), private.at("keys.toml")).unwrap();
    let authority = Authority::new();
    authority.write(private.folder.path());
    let (of_rsa, of_ec, open) = (World::new(), World::new(), World::new());
    publish(&of_rsa, &[rsa]);
    publish(&of_ec, &[ec]);
    let off = Server::start(&open.at("data"), &["--set", "worker.enabled=false"]);
    let with_keys = world.serve(&[]);
    let with_rsa = of_rsa.serve(&settings(&of_rsa));
    let with_ec = of_ec.serve(&settings(&of_ec));
    let with_tls = private.serve(&[
        private.setting("tls.cert_file", "tls.crt"),
        private.setting("tls.key_file", "tls.key"),
    ]);
    // The cache of verified tokens is smaller than this number, so every signature is verified.
    let fresh = |signer: &Signer| -> Vec<String> {
        let token = |n| signer.sign(&claims(&json!({"jti": n})));
        (0..6_000).map(token).collect()
    };
    let (rsa_fresh, ec_fresh) = (fresh(rsa), fresh(ec));
    let ec_same = vec![ec_fresh[0].clone()];
    let keys = vec![key];
    let cases = [
        ("off", &off, off.channel().await, &keys),
        ("key", &with_keys, with_keys.channel().await, &keys),
        (
            "ES256, remembered",
            &with_ec,
            with_ec.channel().await,
            &ec_same,
        ),
        (
            "ES256, checked anew",
            &with_ec,
            with_ec.channel().await,
            &ec_fresh,
        ),
        (
            "RS256, checked anew",
            &with_rsa,
            with_rsa.channel().await,
            &rsa_fresh,
        ),
        (
            "key and TLS",
            &with_tls,
            tls(&with_tls, &authority, None).await.unwrap(),
            &keys,
        ),
    ];
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); cases.len()];
    let mut used = vec![Duration::ZERO; cases.len()];
    let mut at = 0;
    for _ in 0..ROUNDS {
        for ((times, used), (name, server, channel, credentials)) in
            times.iter_mut().zip(&mut used).zip(&cases)
        {
            let mut turned = (*credentials).clone();
            if name.ends_with("anew") {
                turned.rotate_left(at);
            }
            let before = busy(server);
            times.push(round(channel, &turned).await);
            *used += busy(server).saturating_sub(before);
        }
        at = (at + CALLS as usize) % 6_000;
    }
    for ((times, used), (name, ..)) in times.iter_mut().zip(used).zip(&cases) {
        times.sort();
        let of_server = used / CALLS / u32::try_from(ROUNDS).unwrap();
        let (median, fastest) = (times[ROUNDS / 2], times[0]);
        println!(
            "{name:>20}: {median:?} a call (fastest round {fastest:?}), {of_server:?} of the server's processor"
        );
    }
}
