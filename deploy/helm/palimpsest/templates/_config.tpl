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
{{- $refused := dict "role" "" "listen" "" "data_dir" "" "gateway" (dict "enabled" "" "listen" "" "listen_anywhere" "") -}}
{{- if .Values.scaleOut.enabled -}}
{{- $_ := set $refused "store" (dict "postgres" (dict "connections" "")) -}}
{{- end -}}
{{- include "palimpsest.refuse" (dict "own" (merge $refused (omit $own "log")) "given" .Values.config "prefix" "") -}}
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
