//! Tests of the gateway in the chart: its port, its keys, its network and its memory.

use serde_json::{Value, json};

use crate::helm::{Objects, chart, refusal_of};
use crate::promises::default_of;

const PORT: u64 = 50_053;

/// Returns the entry of a list with this name.
fn named<'a>(list: &'a Value, name: &str) -> Option<&'a Value> {
    let list = list.as_array().into_iter().flatten();
    list.into_iter().find(|entry| entry["name"] == name)
}

/// Returns the names of the mounted Secrets of a pod.
fn secrets(pod: &Value) -> Vec<&str> {
    let volumes = pod["volumes"].as_array().unwrap().iter();
    let names = volumes.filter_map(|volume| volume["secret"]["secretName"].as_str());
    names.collect()
}

/// Returns the rules of a `NetworkPolicy` for a port.
fn rules<'a>(policy: &'a Value, direction: &str, port: &Value) -> Vec<&'a Value> {
    let rules = policy["spec"][direction].as_array().unwrap().iter();
    let has_port = |rule: &&Value| {
        let ports = rule["ports"].as_array().unwrap();
        ports.iter().any(|one| one["port"] == *port)
    };
    rules.filter(has_port).collect()
}

#[test]
fn the_port_of_the_gateway_is_open_only_if_it_is_on() {
    for example in ["minimal", "scale-out", "gateway"] {
        let objects = Objects::of(&chart().join(format!("examples/{example}.yaml")));
        let is_on = example == "gateway";
        for service in objects.all("Service") {
            let port = named(&service["spec"]["ports"], "gateway");
            let is_admin = named(&service["spec"]["ports"], "admin").is_some();
            assert_eq!(port.is_some(), is_on && !is_admin, "{example}");
            if let Some(port) = port {
                assert_eq!(port["port"], PORT);
                assert_eq!(port["targetPort"], "gateway");
            }
        }
        for pod in objects.serving() {
            let port = named(&pod["containers"][0]["ports"], "gateway");
            assert_eq!(
                port.map(|port| port["containerPort"].as_u64().unwrap()),
                is_on.then_some(PORT)
            );
        }
        let policy = objects.named("NetworkPolicy", "prod-palimpsest");
        assert_eq!(
            rules(policy, "ingress", &json!("gateway")).len(),
            usize::from(is_on)
        );
        assert_eq!(objects.toml().contains("gateway."), is_on, "{example}");
    }
}

#[test]
fn a_held_key_is_a_file_of_the_servers_alone() {
    let example = chart().join("examples/gateway.yaml");
    let objects = Objects::of(&example);
    for (api, secret) in [
        ("anthropic", "palimpsest-anthropic"),
        ("openai", "palimpsest-openai"),
    ] {
        assert!(secrets(objects.pod()).contains(&secret));
        let folder = format!("/etc/palimpsest/secrets/gateway-{api}");
        let line = format!("gateway.upstreams.{api}.api_key_file = \"{folder}/api-key\"");
        assert!(objects.toml().contains(&line), "{}", objects.toml());
        let mounts = objects.container()["volumeMounts"].as_array().unwrap();
        assert!(mounts.iter().any(|mount| mount["mountPath"] == folder));
    }
    let scaled = chart().join("examples/scale-out.yaml");
    let set = [
        "gateway.enabled=true",
        "gateway.anthropicKeySecret.name=held",
        "scaleOut.server.resources.limits.memory=4Gi",
    ];
    let objects = Objects::with(Some(&scaled), &set);
    for deployment in objects.all("Deployment") {
        let is_server = deployment["metadata"]["labels"]["app.kubernetes.io/component"] == "server";
        let pod = &deployment["spec"]["template"]["spec"];
        // A worker serves no agents, so it gets neither the key nor the port.
        assert_eq!(secrets(pod).contains(&"held"), is_server);
        let port = named(&pod["containers"][0]["ports"], "gateway");
        assert_eq!(port.is_some(), is_server);
    }
}

#[test]
fn the_network_admits_agents_and_reaches_the_providers() {
    let example = chart().join("examples/gateway.yaml");
    let objects = Objects::of(&example);
    let policy = objects.named("NetworkPolicy", "prod-palimpsest");
    let agents = &rules(policy, "ingress", &json!("gateway"))[0]["from"];
    assert!(agents.to_string().contains("palimpsest.example.com/agents"));
    let provider = rules(policy, "egress", &json!(443));
    assert_eq!(provider.len(), 1);
    // A rule without `to` admits every address.
    assert!(provider[0]["to"].is_null());
    let set = [
        "networkPolicy.gatewayClients=null",
        "networkPolicy.clients[0].podSelector.matchLabels.app=client",
        "networkPolicy.providers[0].ipBlock.cidr=10.1.0.0/16",
        "config.gateway.upstreams.openai.base_url=http://models.internal:8000/v1",
        "config.gateway.upstreams.anthropic.base_url=http://claude.internal",
    ];
    let objects = Objects::with(Some(&example), &set);
    let policy = objects.named("NetworkPolicy", "prod-palimpsest");
    // Without `gatewayClients`, those of `clients` may call the gateway.
    let agents = &rules(policy, "ingress", &json!("gateway"))[0]["from"];
    assert_eq!(
        *agents,
        json!([{"podSelector": {"matchLabels": {"app": "client"}}}])
    );
    // The base URLs have other ports: 8000, and 80 as the default of `http`.
    assert!(rules(policy, "egress", &json!(443)).is_empty());
    let provider = rules(policy, "egress", &json!(8000));
    assert_eq!(provider, rules(policy, "egress", &json!(80)));
    assert_eq!(
        provider[0]["to"],
        json!([{"ipBlock": {"cidr": "10.1.0.0/16"}}])
    );
}

#[test]
fn a_memory_limit_below_the_limits_of_the_gateway_is_rejected() {
    let mib = |key: &str| default_of(key).div_ceil(1 << 20);
    // A request counts twice: as received, and as the view that replaces it.
    let in_flight = 2 * mib("gateway.max_request_bytes_in_flight")
        + mib("gateway.max_response_bytes_in_flight");
    let caches = mib("sessions.cache_bytes");
    // Only the embedded store has a cache of its own.
    let alone = 2 * (caches + mib("store.cache_bytes")) + 256 + in_flight;
    let shared = 2 * caches + 256 + in_flight;
    for (example, path, needed) in [
        ("minimal", "resources", alone),
        ("scale-out", "scaleOut.server.resources", shared),
    ] {
        let example = chart().join(format!("examples/{example}.yaml"));
        let own_cache = "config.sessions.cache_bytes=null";
        let limit = |mib: u64| format!("{path}.limits.memory={mib}Mi");
        let on = "gateway.enabled=true";
        Objects::with(Some(&example), &[on, own_cache, &limit(needed)]);
        let said = refusal_of(&example, &[on, own_cache, &limit(needed - 1)]);
        assert!(said.contains(&format!("{path}.limits.memory")), "{said}");
        assert!(said.contains(&format!("at least {needed}Mi")), "{said}");
        // A limit of 1 MiB for requests in flight makes up for the missing MiB of memory.
        let less = "config.gateway.max_request_bytes_in_flight=1048576";
        Objects::with(Some(&example), &[on, own_cache, less, &limit(needed - 1)]);
        let none = format!("{path}.limits=null");
        Objects::with(Some(&example), &[on, &none]);
    }
}

#[test]
fn unsafe_values_of_the_gateway_are_rejected() {
    let minimal = chart().join("examples/minimal.yaml");
    let (on, memory) = ("gateway.enabled=true", "resources.limits.memory=4Gi");
    Objects::with(Some(&minimal), &[on, memory]);
    for (set, why) in [
        ("gateway.anthropicKeySecret.name=held", "need auth"),
        (
            "config.gateway.listen=x",
            "config.gateway.listen is set by the chart",
        ),
        (
            "config.gateway.enabled=true",
            "config.gateway.enabled is set by the chart",
        ),
        (
            "extraEnv[0].name=PALIMPSEST_GATEWAY_LISTEN",
            "the pod depends on PALIMPSEST_GATEWAY_LISTEN",
        ),
        ("gateway.enable=true", "enable"),
    ] {
        let said = refusal_of(&minimal, &[on, memory, set]);
        assert!(said.contains(why), "{said}");
    }
}
