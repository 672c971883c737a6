{{/* Names and labels. */}}
{{- define "palimpsest.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "palimpsest.fullname" -}}
{{- $name := include "palimpsest.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "palimpsest.selector" -}}
app.kubernetes.io/name: {{ include "palimpsest.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The pods that answer calls. */}}
{{- define "palimpsest.serverSelector" -}}
{{ include "palimpsest.selector" . }}
{{- if .Values.scaleOut.enabled }}
app.kubernetes.io/component: server
{{- end }}
{{- end -}}

{{- define "palimpsest.labels" -}}
{{ include "palimpsest.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "palimpsest.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "palimpsest.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "palimpsest.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ $tag }}
{{- end -}}
{{- end -}}

{{/* Seconds from SIGTERM to SIGKILL: calls drain, the worker ends, and the store closes. 25000 and 5000 are the defaults of
     the server; a test compares them with the server. */}}
{{- define "palimpsest.graceSeconds" -}}
{{- $drain := dig "shutdown" "drain_ms" 25000 .root.Values.config -}}
{{- $worker := dig "worker" "shutdown_grace_ms" 5000 .root.Values.config -}}
{{- $own := divf (addf $drain $worker) 1000 | ceil | int -}}
{{- add $own .preStop .root.Values.termination.marginSeconds -}}
{{- end -}}

{{/* One probe. Parameters: the root, the service name of gRPC health, and the path on the admin port. */}}
{{- define "palimpsest.probe" -}}
{{- $type := .root.Values.probes.type -}}
{{- if eq $type "auto" -}}
{{- $type = ternary "http" "grpc" (ne .root.Values.tls.secretName "") -}}
{{- end -}}
{{- if eq $type "grpc" -}}
grpc:
  port: {{ .root.Values.ports.grpc }}
  service: {{ .service }}
{{- else -}}
httpGet:
  port: admin
  path: {{ .path }}
{{- end }}
timeoutSeconds: {{ .root.Values.probes.timeoutSeconds }}
periodSeconds: {{ .root.Values.probes.periodSeconds }}
{{- end -}}
