{{/* The TOML file of the server. Only this file uses names of settings, except for the two durations of the grace
     period. */}}

{{- define "palimpsest.secretsDir" -}}/etc/palimpsest/secrets{{- end -}}

{{/* The settings of the chart: the admin port and the mounted files. The pod's environment contains the listen address and
     the data folder, because the image sets variables for them, and variables override the file. */}}
{{- define "palimpsest.ownConfig" -}}
{{- $dir := include "palimpsest.secretsDir" . -}}
admin:
  listen: "0.0.0.0:{{ .Values.ports.admin }}"
  listen_anywhere: true
{{- if .Values.allowAnonymous }}
insecure_listen_anywhere: true
{{- end }}
{{- if .Values.scaleOut.enabled }}
store:
  postgres:
    url: {{ required "scaleOut.database.url is not set. Set it to the URL of the PostgreSQL database, without a password." .Values.scaleOut.database.url | quote }}
    auto_migrate: {{ not .Values.scaleOut.migration.enabled }}
    {{- if .Values.scaleOut.database.passwordSecret.name }}
    password_file: {{ $dir }}/database/{{ .Values.scaleOut.database.passwordSecret.key }}
    {{- end }}
    {{- if .Values.scaleOut.database.caSecret.name }}
    ca_file: {{ $dir }}/database-ca/{{ .Values.scaleOut.database.caSecret.key }}
    {{- end }}
{{- end }}
{{- if .Values.modelKeySecret.name }}
summarizer:
  api_key_file: {{ $dir }}/model/{{ .Values.modelKeySecret.key }}
{{- end }}
{{- if .Values.gateway.enabled }}
gateway:
  enabled: true
  listen: "0.0.0.0:{{ .Values.ports.gateway }}"
  listen_anywhere: true
  {{- if include "palimpsest.heldKeys" . }}
  upstreams:
    {{- with .Values.gateway.anthropicKeySecret }}{{ if .name }}
    anthropic:
      api_key_file: {{ $dir }}/gateway-anthropic/{{ .key }}
    {{- end }}{{ end }}
    {{- with .Values.gateway.openaiKeySecret }}{{ if .name }}
    openai:
      api_key_file: {{ $dir }}/gateway-openai/{{ .key }}
    {{- end }}{{ end }}
  {{- end }}
{{- end }}
{{- if or .Values.auth.keysSecret.name .Values.auth.jwksSecret.name }}
auth:
  {{- with .Values.auth.keysSecret }}{{ if .name }}
  keys_file: {{ $dir }}/keys/{{ .key }}
  {{- end }}{{ end }}
  {{- with .Values.auth.jwksSecret }}{{ if .name }}
  jwt:
    jwks_file: {{ $dir }}/jwks/{{ .key }}
  {{- end }}{{ end }}
{{- end }}
{{- if .Values.tls.secretName }}
tls:
  cert_file: {{ $dir }}/tls/tls.crt
  key_file: {{ $dir }}/tls/tls.key
  {{- with .Values.tls.clientCaSecret }}{{ if .name }}
  client_ca_file: {{ $dir }}/client-ca/{{ .key }}
  {{- end }}{{ end }}
{{- end }}
log:
  format: json
{{- end -}}

{{/* The settings of the chart and of the user. The chart rejects its own settings in config, because it would override
     them silently. */}}
{{- define "palimpsest.config" -}}
{{- $own := include "palimpsest.ownConfig" . | fromYaml -}}
{{- include "palimpsest.refuse" (dict "own" (merge (dict "listen" "" "data_dir" "" "gateway" (dict "enabled" "" "listen" "" "listen_anywhere" "")) (omit $own "log")) "given" .Values.config "prefix" "") -}}
{{- $settings := mergeOverwrite (dict "log" $own.log) (deepCopy .Values.config) | mergeOverwrite (omit $own "log") -}}
{{- include "palimpsest.toml" (dict "map" $settings "prefix" "") -}}
{{- end -}}

{{- define "palimpsest.refuse" -}}
{{- $given := .given -}}
{{- $prefix := .prefix -}}
{{- range $key, $value := .own -}}
{{- if hasKey $given $key -}}
{{- if and (kindIs "map" $value) (kindIs "map" (get $given $key)) -}}
{{- include "palimpsest.refuse" (dict "own" $value "given" (get $given $key) "prefix" (printf "%s%s." $prefix $key)) -}}
{{- else -}}
{{- fail (printf "config.%s%s is set by the chart. Remove it and use ports, auth, tls, modelKeySecret, gateway, scaleOut or allowAnonymous instead." $prefix $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Renders maps as lines of dotted keys. toToml of Helm writes 25000 as 25000.0, because all numbers of values are
     floats, and the server rejects that. */}}
{{- define "palimpsest.toml" -}}
{{- $prefix := .prefix -}}
{{- range $key, $value := .map -}}
{{- $path := printf "%s%s" $prefix (include "palimpsest.tomlKey" $key) -}}
{{- if kindIs "map" $value -}}
{{- include "palimpsest.toml" (dict "map" $value "prefix" (printf "%s." $path)) -}}
{{- else if not (kindIs "invalid" $value) -}}
{{ $path }} = {{ include "palimpsest.tomlValue" $value }}
{{ end -}}
{{- end -}}
{{- end -}}

{{- define "palimpsest.tomlKey" -}}
{{- if regexMatch "^[A-Za-z0-9_-]+$" . -}}{{ . }}{{- else -}}{{ toJson . }}{{- end -}}
{{- end -}}

{{/* Scalars and lists have the same syntax in JSON and TOML. Maps in lists do not. */}}
{{- define "palimpsest.tomlValue" -}}
{{- if kindIs "map" . -}}
{ {{- range $i, $key := keys . | sortAlpha }}{{ if $i }}, {{ end }}{{ include "palimpsest.tomlKey" $key }} = {{ include "palimpsest.tomlValue" (get $ $key) }}{{ end -}} }
{{- else if kindIs "slice" . -}}
[{{- range $i, $value := . }}{{ if $i }}, {{ end }}{{ include "palimpsest.tomlValue" $value }}{{ end -}}]
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end -}}

{{/* Fails without authentication, unless allowAnonymous is set. */}}
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
{{- range .Values.extraEnv -}}
{{- if has .name (list "PALIMPSEST_SHUTDOWN_DRAIN_MS" "PALIMPSEST_WORKER_SHUTDOWN_GRACE_MS" "PALIMPSEST_LISTEN" "PALIMPSEST_ADMIN_LISTEN" "PALIMPSEST_GATEWAY_ENABLED" "PALIMPSEST_GATEWAY_LISTEN" "PALIMPSEST_DATA_DIR" "PALIMPSEST_ROLE" "PALIMPSEST_STORE_POSTGRES_CONNECTIONS") -}}
{{- fail (printf "extraEnv: the pod depends on %s. Set it in config, ports, gateway or scaleOut instead, where the chart can read it." .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The Secrets with keys that the gateway holds: folder and name. Empty if the gateway is off. */}}
{{- define "palimpsest.heldKeys" -}}
{{- if .Values.gateway.enabled }}
{{- with .Values.gateway.anthropicKeySecret.name }}
gateway-anthropic: {{ . }}
{{- end }}
{{- with .Values.gateway.openaiKeySecret.name }}
gateway-openai: {{ . }}
{{- end }}
{{- end }}
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

{{/* The ports of the providers, which the base URLs of the upstreams name, as a list in JSON. */}}
{{- define "palimpsest.providerPorts" -}}
{{- $ports := list -}}
{{- range $api := list "anthropic" "openai" -}}
{{- $url := dig "gateway" "upstreams" $api "base_url" nil $.Values.config | default "https://provider" | urlParse -}}
{{- $named := regexFind ":[0-9]+$" $url.host | trimPrefix ":" -}}
{{- $ports = append $ports ($named | default (ternary "80" "443" (eq $url.scheme "http")) | int) -}}
{{- end -}}
{{- uniq $ports | toJson -}}
{{- end -}}

{{/* Checks the number of database connections, because too few cause rejected calls only when all processes run. During a
     rollout, old pods keep their connections beside the new pods, so the chart counts all pods twice. Each process has
     two connections besides its pool: one for hints, and one for readiness checks while the pool is in use. */}}
{{- define "palimpsest.checkScaleOut" -}}
{{- $out := .Values.scaleOut -}}
{{- if not (dig "blobs" "url" "" .Values.config) -}}
{{- fail "scaleOut needs config.blobs.url: all pods must share the same files, for example in s3://bucket/prefix" -}}
{{- end -}}
{{- $servers := $out.server.replicas -}}
{{- if $out.server.autoscaling.enabled -}}
{{- $servers = $out.server.autoscaling.maxReplicas -}}
{{- end -}}
{{- $needed := add (mul 2 $servers (add $out.server.connections 2)) (mul 2 $out.worker.replicas (add $out.worker.connections 2)) 2 -}}
{{- if gt (int $needed) (int $out.database.maxConnections) -}}
{{- fail (printf "scaleOut: %d servers with %d connections and %d workers with %d need %d connections during a rollout, and scaleOut.database.maxConnections is %d. Reduce the pods or their connections, or raise max_connections of the database." (int $servers) (int $out.server.connections) (int $out.worker.replicas) (int $out.worker.connections) (int $needed) (int $out.database.maxConnections)) -}}
{{- end -}}
{{- end -}}

{{/* The default spread of the pods of a component: over zones, then over nodes. */}}
{{- define "palimpsest.spread" -}}
{{- if .root.Values.topologySpreadConstraints -}}
{{- toYaml .root.Values.topologySpreadConstraints -}}
{{- else -}}
{{- $root := .root -}}
{{- $component := .component -}}
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  # Excludes pods of the previous release from the count.
  matchLabelKeys: [pod-template-hash]
  labelSelector:
    matchLabels:
      {{- include "palimpsest.selector" $root | nindent 6 }}
      app.kubernetes.io/component: {{ $component }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* The mounted Secrets of all pods: folder and name. */}}
{{- define "palimpsest.secrets" -}}
{{- with .Values.auth.keysSecret.name }}
keys: {{ . }}
{{- end }}
{{- with .Values.auth.jwksSecret.name }}
jwks: {{ . }}
{{- end }}
{{- with .Values.tls.secretName }}
tls: {{ . }}
{{- end }}
{{- with .Values.tls.clientCaSecret.name }}
client-ca: {{ . }}
{{- end }}
{{- with .Values.modelKeySecret.name }}
model: {{ . }}
{{- end }}
{{- if .Values.scaleOut.enabled }}
{{- with .Values.scaleOut.database.passwordSecret.name }}
database: {{ . }}
{{- end }}
{{- with .Values.scaleOut.database.caSecret.name }}
database-ca: {{ . }}
{{- end }}
{{- end }}
{{- end -}}
