{{/* Checks of values that a schema cannot express. Each fails with the value to change. */}}

{{/* Fails without authentication, unless allowAnonymous is set. Fails with authentication that the server would reject at its
     start: without encryption, or with tokens of any issuer. Settings in extraEnv count. */}}
{{- define "palimpsest.checkAccess" -}}
{{- $asked := or .Values.auth.keysSecret.name .Values.auth.jwksSecret.name (dig "auth" "keys_file" "" .Values.config) (dig "auth" "jwt" "jwks_file" "" .Values.config) -}}
{{- if and .Values.tls.clientCaSecret.name (not .Values.tls.secretName) -}}
{{- fail "tls.clientCaSecret needs tls.secretName: mutual TLS requires a certificate of the server" -}}
{{- end -}}
{{- if and .Values.allowAnonymous $asked -}}
{{- fail "allowAnonymous contradicts auth: remove one of them" -}}
{{- end -}}
{{- if not (or .Values.allowAnonymous $asked) -}}
{{- fail "No authentication is configured. Set auth.keysSecret.name or auth.jwksSecret.name, or set allowAnonymous: true to accept all callers." -}}
{{- end -}}
{{- $env := concat .Values.extraEnv (dig "extraEnv" list .Values.scaleOut.server.pod) (dig "extraEnv" list .Values.scaleOut.worker.pod) -}}
{{- $variables := list -}}
{{- range $env -}}
{{- $variables = append $variables .name -}}
{{- end -}}
{{- $encrypts := or .Values.tls.secretName (dig "tls" "cert_file" "" .Values.config) (has "PALIMPSEST_TLS_CERT_FILE" $variables) -}}
{{- $plaintext := or (dig "auth" "allow_plaintext" false .Values.config) (has "PALIMPSEST_AUTH_ALLOW_PLAINTEXT" $variables) -}}
{{- if and $asked (not $encrypts) (not $plaintext) -}}
{{- fail "auth needs tls.secretName: credentials would be sent without encryption. If a service mesh or an ingress controller encrypts all connections, set config.auth.allow_plaintext: true instead." -}}
{{- end -}}
{{- if or .Values.auth.jwksSecret.name (dig "auth" "jwt" "jwks_file" "" .Values.config) -}}
{{- range $name := list "issuer" "audience" -}}
{{- if not (or (dig "auth" "jwt" $name "" $.Values.config) (has (printf "PALIMPSEST_AUTH_JWT_%s" (upper $name)) $variables)) -}}
{{- fail (printf "auth.jwksSecret needs config.auth.jwt.%s: otherwise tokens for other services would be accepted" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $env -}}
{{- if has .name (list "PALIMPSEST_SHUTDOWN_DRAIN_MS" "PALIMPSEST_WORKER_SHUTDOWN_GRACE_MS" "PALIMPSEST_LISTEN" "PALIMPSEST_ADMIN_LISTEN" "PALIMPSEST_GATEWAY_ENABLED" "PALIMPSEST_GATEWAY_LISTEN" "PALIMPSEST_DATA_DIR" "PALIMPSEST_ROLE" "PALIMPSEST_STORE_POSTGRES_CONNECTIONS") -}}
{{- fail (printf "extraEnv: the pod depends on %s. Set it in config, ports, gateway or scaleOut instead, where the chart can read it." .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A quantity of Kubernetes in bytes. Empty without a quantity, or with a unit that is no usual unit of memory. */}}
{{- define "palimpsest.bytes" -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $text := toString . -}}
{{- $unit := regexFind "[A-Za-z]*$" $text -}}
{{- if and $text (hasKey $units $unit) -}}
{{- mulf (trimSuffix $unit $text | float64) (get $units $unit) | int64 -}}
{{- end -}}
{{- end -}}

{{/* Checks the memory limit of a pod with the gateway, because a pod that exceeds it is killed with all its requests. Caches
     count twice, as in docs/capacity.md. Bodies of requests count twice: as received, and as the view that replaces them.
     The numbers are the defaults of the server; a test compares them with the server. Parameters: the root; resources;
     path, the value with the resources. */}}
{{- define "palimpsest.checkGateway" -}}
{{- $config := .root.Values.config -}}
{{- if .root.Values.gateway.enabled -}}
{{- if and .root.Values.allowAnonymous (include "palimpsest.heldKeys" .root) -}}
{{- fail "gateway.anthropicKeySecret and gateway.openaiKeySecret need auth: with allowAnonymous, every caller could use the key of the provider" -}}
{{- end -}}
{{- $limit := dig "limits" "memory" "" .resources | include "palimpsest.bytes" -}}
{{- $caches := dig "sessions" "cache_bytes" nil $config | default 268435456 | int64 -}}
{{- if not .root.Values.scaleOut.enabled -}}
{{- $caches = dig "store" "cache_bytes" nil $config | default 67108864 | int64 | add $caches -}}
{{- end -}}
{{- $requests := dig "gateway" "max_request_bytes_in_flight" nil $config | default 536870912 | int64 -}}
{{- $responses := dig "gateway" "max_response_bytes_in_flight" nil $config | default 268435456 | int64 -}}
{{- $needed := add (mul 2 $caches) 268435456 (mul 2 $requests) $responses -}}
{{- if and $limit (lt (int64 $limit) (int64 $needed)) -}}
{{- fail (printf "%s.limits.memory: a server with the gateway needs at least %dMi for its caches and for requests and responses in flight. Raise the limit, or lower gateway.max_request_bytes_in_flight, gateway.max_response_bytes_in_flight or sessions.cache_bytes in config." .path (div (add $needed 1048575) 1048576)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Checks the number of database connections, because too few cause rejected calls only when all processes run. During a
     rollout, old pods keep their connections beside the new pods, so the chart counts all pods twice. Each process has
     two connections besides its pool: one for hints, and one for readiness checks while the pool is in use. */}}
{{- define "palimpsest.checkScaleOut" -}}
{{- $out := .Values.scaleOut -}}
{{- range $component := list "server" "worker" -}}
{{- with get (get $out $component) "autoscaling" -}}
{{- if and .enabled (gt (int .minReplicas) (int .maxReplicas)) -}}
{{- fail (printf "scaleOut.%s.autoscaling: minReplicas is %d and maxReplicas %d. Lower minReplicas or raise maxReplicas." $component (int .minReplicas) (int .maxReplicas)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not (dig "blobs" "url" "" .Values.config) -}}
{{- fail "scaleOut needs config.blobs.url: all pods must share the same files, for example in s3://bucket/prefix" -}}
{{- end -}}
{{- $servers := $out.server.replicas -}}
{{- if $out.server.autoscaling.enabled -}}
{{- $servers = $out.server.autoscaling.maxReplicas -}}
{{- end -}}
{{- $workers := $out.worker.replicas -}}
{{- if $out.worker.autoscaling.enabled -}}
{{- $workers = $out.worker.autoscaling.maxReplicas -}}
{{- end -}}
{{- $needed := add (mul 2 $servers (add $out.server.connections 2)) (mul 2 $workers (add $out.worker.connections 2)) 2 -}}
{{- if gt (int $needed) (int $out.database.maxConnections) -}}
{{- fail (printf "scaleOut: %d servers with %d connections and %d workers with %d need %d connections during a rollout, and scaleOut.database.maxConnections is %d. Reduce the pods or their connections, or raise max_connections of the database." (int $servers) (int $out.server.connections) (int $workers) (int $out.worker.connections) (int $needed) (int $out.database.maxConnections)) -}}
{{- end -}}
{{- end -}}

{{/* A backup reads all sessions, so it needs a key, and a certificate with mutual TLS. */}}
{{- define "palimpsest.checkBackup" -}}
{{- if and (not .Values.allowAnonymous) (not .Values.backup.apiKeySecret.name) -}}
{{- fail "backup.apiKeySecret.name is not set. Create a key with `palimpsest keys create --project '*' --right admin`, and set the name of a Secret with it." -}}
{{- end -}}
{{- if and .Values.tls.clientCaSecret.name (not .Values.tls.clientSecretName) -}}
{{- fail "backup needs tls.clientSecretName: with mutual TLS, the backup must present a client certificate" -}}
{{- end -}}
{{- end -}}

{{/* An incomplete Ingress or route would silently receive no requests. */}}
{{- define "palimpsest.checkRoutes" -}}
{{- $names := list -}}
{{- range $kind := list "ingress" "routes" -}}
{{- range $name, $route := get $.Values $kind -}}
{{- if $route.enabled -}}
{{- $names = append $names (printf "%s.%s" $kind $name) -}}
{{- $needed := ternary "hosts" "parentRefs" (eq $kind "ingress") -}}
{{- if not (get $route $needed) -}}
{{- fail (printf "%s.%s.%s is empty. Name at least one." $kind $name $needed) -}}
{{- end -}}
{{- if and (eq $name "gateway") (not $.Values.gateway.enabled) -}}
{{- fail (printf "%s.gateway needs gateway.enabled: without it, the servers have no such port" $kind) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $names .Values.networkPolicy.enabled (not .Values.networkPolicy.ingressControllers) -}}
{{- fail (printf "%s needs networkPolicy.ingressControllers: without the pods of the controller, the NetworkPolicy blocks its requests" (first $names)) -}}
{{- end -}}
{{- if .Values.routes.grpc.enabled -}}
{{- range $name := list "http" "gateway" -}}
{{- $route := get $.Values.routes $name -}}
{{- range $host := ternary $route.hostnames list $route.enabled -}}
{{- if has $host $.Values.routes.grpc.hostnames -}}
{{- fail (printf "routes.%s.hostnames: %s is a hostname of routes.grpc too. A GRPCRoute and an HTTPRoute cannot share a hostname." $name $host) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
