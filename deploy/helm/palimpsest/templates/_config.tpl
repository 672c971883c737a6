{{/* The server's TOML file. The only place where the chart knows names of its settings, except for the two
     durations of the grace period. */}}

{{- define "palimpsest.secretsDir" -}}/etc/palimpsest/secrets{{- end -}}

{{/* What the chart sets: the admin port, and the files that it mounts. Address and folder are in the pod's
     environment, because the image has variables for them, which win over the file. */}}
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
    url: {{ required "scaleOut.database.url must be set: where the database is" .Values.scaleOut.database.url | quote }}
    migrate: {{ not .Values.scaleOut.migration.enabled }}
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

{{/* What both say. What the chart sets is refused in config, so that nothing is silently overruled. */}}
{{- define "palimpsest.config" -}}
{{- $own := include "palimpsest.ownConfig" . | fromYaml -}}
{{- include "palimpsest.refuse" (dict "own" (merge (dict "listen" "" "data_dir" "") (omit $own "log")) "given" .Values.config "prefix" "") -}}
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
{{- fail (printf "config.%s%s is set by the chart: use ports, auth, tls, modelKeySecret, scaleOut or allowAnonymous for it" $prefix $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Maps as lines of dotted keys. Helm's own toToml writes 25000 as 25000.0, because all numbers of values are
     floats, and the server refuses that. */}}
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

{{/* JSON's scalars and lists are TOML's; maps in lists are not. */}}
{{- define "palimpsest.tomlValue" -}}
{{- if kindIs "map" . -}}
{ {{- range $i, $key := keys . | sortAlpha }}{{ if $i }}, {{ end }}{{ include "palimpsest.tomlKey" $key }} = {{ include "palimpsest.tomlValue" (get $ $key) }}{{ end -}} }
{{- else if kindIs "slice" . -}}
[{{- range $i, $value := . }}{{ if $i }}, {{ end }}{{ include "palimpsest.tomlValue" $value }}{{ end -}}]
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end -}}

{{/* Whether anybody is asked who they are. */}}
{{- define "palimpsest.checkAccess" -}}
{{- $asked := or .Values.auth.keysSecret.name .Values.auth.jwksSecret.name (dig "auth" "keys_file" "" .Values.config) (dig "auth" "jwt" "jwks_file" "" .Values.config) -}}
{{- if and .Values.tls.clientCaSecret.name (not .Values.tls.secretName) -}}
{{- fail "tls.clientCaSecret needs tls.secretName: clients' certificates are asked for over TLS" -}}
{{- end -}}
{{- if and .Values.allowAnonymous $asked -}}
{{- fail "allowAnonymous contradicts auth: take one of them away" -}}
{{- end -}}
{{- if not (or .Values.allowAnonymous $asked) -}}
{{- fail "nobody would be asked who they are: set auth.keysSecret.name or auth.jwksSecret.name, or, where everybody who reaches the port may enter, allowAnonymous: true" -}}
{{- end -}}
{{- range .Values.extraEnv -}}
{{- if has .name (list "PALIMPSEST_SHUTDOWN_DRAIN_MS" "PALIMPSEST_WORKER_GRACE_MS" "PALIMPSEST_LISTEN" "PALIMPSEST_ADMIN_LISTEN" "PALIMPSEST_DATA_DIR" "PALIMPSEST_ROLE" "PALIMPSEST_STORE_POSTGRES_CONNECTIONS") -}}
{{- fail (printf "extraEnv: the pod depends on %s: set it in config or ports, where the chart sees it" .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What only shows when all processes are up at once, and then as refused calls: while a release takes over, pods that
     end still have their connections beside those that have come, and no Deployment counts them; and each process
     has two connections beside those of its pool, one for hints and one by which it is found ready when all others
     are in use. */}}
{{- define "palimpsest.checkScaleOut" -}}
{{- $out := .Values.scaleOut -}}
{{- if not (dig "blobs" "url" "" .Values.config) -}}
{{- fail "scaleOut needs config.blobs.url: all pods have to find the same files, such as in s3://bucket/prefix" -}}
{{- end -}}
{{- $servers := $out.server.replicas -}}
{{- if $out.server.autoscaling.enabled -}}
{{- $servers = $out.server.autoscaling.maxReplicas -}}
{{- end -}}
{{- $needed := add (mul 2 $servers (add $out.server.connections 2)) (mul 2 $out.worker.replicas (add $out.worker.connections 2)) 2 -}}
{{- if gt (int $needed) (int $out.database.maxConnections) -}}
{{- fail (printf "scaleOut: %d servers with %d connections and %d workers with %d need %d connections while a release takes over, and scaleOut.database.maxConnections is %d: take fewer, or let the database have more" (int $servers) (int $out.server.connections) (int $out.worker.replicas) (int $out.worker.connections) (int $needed) (int $out.database.maxConnections)) -}}
{{- end -}}
{{- end -}}

{{/* How pods of a component are spread, unless somebody says otherwise: over zones, then over nodes. */}}
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
  # Pods of the release before would count otherwise.
  matchLabelKeys: [pod-template-hash]
  labelSelector:
    matchLabels:
      {{- include "palimpsest.selector" $root | nindent 6 }}
      app.kubernetes.io/component: {{ $component }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* The Secrets that are mounted: folder and name. */}}
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
