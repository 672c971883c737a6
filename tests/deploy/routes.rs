//! Tests of the Ingresses and the routes of the Gateway API.

use serde_json::{Value, json};

use crate::helm::{Objects, chart, refusal_of};

/// Returns the ports of the service for clients, by their names and by their numbers.
fn service_ports(objects: &Objects) -> Vec<(Value, Value)> {
    let service = objects.named("Service", "prod-palimpsest");
    let ports = service["spec"]["ports"].as_array().unwrap().iter();
    ports
        .map(|port| (port["name"].clone(), port["port"].clone()))
        .collect()
}

#[test]
fn without_values_nothing_is_exposed() {
    for example in ["minimal", "production", "scale-out", "gateway"] {
        let objects = Objects::of(&chart().join(format!("examples/{example}.yaml")));
        for kind in ["Ingress", "HTTPRoute", "GRPCRoute"] {
            assert!(objects.all(kind).is_empty(), "{example}: {kind}");
        }
    }
}

#[test]
fn each_route_has_its_port_and_admits_streams() {
    let objects = Objects::of(&chart().join("examples/routes.yaml"));
    let ports = service_ports(&objects);
    let number = |name: &str| &ports.iter().find(|(port, _)| port == name).unwrap().1;
    for (kind, name, port) in [
        ("GRPCRoute", "prod-palimpsest-grpc", "grpc"),
        ("HTTPRoute", "prod-palimpsest-http", "grpc"),
        ("HTTPRoute", "prod-palimpsest-gateway", "gateway"),
    ] {
        let spec = &objects.named(kind, name)["spec"];
        assert_eq!(spec["parentRefs"][0]["name"], "public");
        assert_eq!(spec["hostnames"].as_array().unwrap().len(), 1);
        let rule = &spec["rules"][0];
        assert_eq!(
            rule["backendRefs"],
            json!([{"name": "prod-palimpsest", "port": number(port)}])
        );
        // A time limit would end long streams. `0s` disables it.
        if kind == "HTTPRoute" {
            assert_eq!(
                rule["timeouts"],
                json!({"request": "0s", "backendRequest": "0s"})
            );
            assert_eq!(
                rule["matches"],
                json!([{"path": {"type": "PathPrefix", "value": "/"}}])
            );
        }
    }
    let grpc = objects.named("GRPCRoute", "prod-palimpsest-grpc");
    let matches = grpc["spec"]["rules"][0]["matches"].as_array().unwrap();
    let services: Vec<_> = matches
        .iter()
        .map(|it| it["method"]["service"].as_str().unwrap())
        .collect();
    // The route names services of the contract, and backups only if a user adds them.
    let known = palimpsest_proto_services();
    for service in &services {
        assert!(known.contains(&(*service).to_owned()), "{service}");
    }
    assert!(!services.contains(&"palimpsest.context.v1.AdminService"));
    let policy = objects.one("BackendTLSPolicy");
    assert_eq!(
        policy["spec"]["validation"]["hostname"],
        "prod-palimpsest.agents.svc"
    );
}

fn palimpsest_proto_services() -> Vec<String> {
    use palimpsest_proto::context::v1::context_service_server as context;
    use palimpsest_proto::context::v1::session_service_server as session;
    vec![
        context::SERVICE_NAME.to_owned(),
        session::SERVICE_NAME.to_owned(),
        "grpc.health.v1.Health".to_owned(),
    ]
}

#[test]
fn each_ingress_has_its_port_and_its_annotations() {
    let example = chart().join("examples/ingress.yaml");
    let set = [
        "gateway.enabled=true",
        "resources.limits.memory=4Gi",
        "ingress.gateway.enabled=true",
        "ingress.gateway.hosts[0]=agents.example.com",
        "ingress.gateway.annotations.a=b",
    ];
    let objects = Objects::with(Some(&example), &set);
    let ports = service_ports(&objects);
    for (name, port, paths) in [
        ("grpc", "grpc", 1),
        ("http", "grpc", 2),
        ("gateway", "gateway", 1),
    ] {
        let ingress = objects.named("Ingress", &format!("prod-palimpsest-{name}"));
        let rule = &ingress["spec"]["rules"][0];
        let all = rule["http"]["paths"].as_array().unwrap();
        assert_eq!(all.len(), paths, "{name}");
        for path in all {
            assert_eq!(
                path["backend"]["service"],
                json!({"name": "prod-palimpsest", "port": {"name": port}})
            );
        }
        assert!(ports.iter().any(|(known, _)| known == port));
        let own = ingress["metadata"]["annotations"]["a"] == "b";
        assert_eq!(own, name == "gateway", "{name}");
    }
}

#[test]
fn the_network_admits_the_controllers() {
    let objects = Objects::of(&chart().join("examples/routes.yaml"));
    let policy = objects.named("NetworkPolicy", "prod-palimpsest");
    let rules = policy["spec"]["ingress"].as_array().unwrap().iter();
    let mut of_gateways = rules.filter(|rule| rule["from"].to_string().contains("gateways"));
    assert_eq!(
        of_gateways.next().unwrap()["ports"],
        json!([{"port": "grpc"}, {"port": "gateway"}])
    );
}

#[test]
fn routes_without_effect_are_rejected() {
    let example = chart().join("examples/routes.yaml");
    for (set, why) in [
        (
            "networkPolicy.ingressControllers=null",
            "routes.gateway needs networkPolicy.ingressControllers",
        ),
        (
            "routes.http.parentRefs=null",
            "routes.http.parentRefs is empty",
        ),
        ("ingress.grpc.enabled=true", "ingress.grpc.hosts is empty"),
        (
            "gateway.enabled=false",
            "routes.gateway needs gateway.enabled",
        ),
        (
            "routes.http.hostnames[0]=grpc.palimpsest.example.com",
            "cannot share a hostname",
        ),
        ("routes.http.timeout=1s", "'timeout'"),
    ] {
        let said = refusal_of(&example, &[set]);
        assert!(said.contains(why), "{set}: {said}");
    }
}
