{{/* Pods that run one command and end: the Job of the tables, backups and tests. */}}

{{/* The labels by which a task is selected. They differ from those of the server, so that no service routes calls to the
     pod. Parameters: the root; task, the name. */}}
{{- define "palimpsest.taskSelector" -}}
app.kubernetes.io/name: {{ include "palimpsest.name" .root }}-{{ .task }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end -}}

{{- define "palimpsest.taskLabels" -}}
{{ include "palimpsest.taskSelector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end -}}

{{/* The labels and annotations of the pod of a task. Parameters: those above; values, the values of the pod; annotations,
     further annotations. */}}
{{- define "palimpsest.taskMetadata" -}}
labels:
  {{- include "palimpsest.taskLabels" . | nindent 2 }}
  {{- with .values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) (.values.podAnnotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The specification of the pod of a task. Parameters: those above; name and args of the container; env, a list of
     variables; volumes, a list with name, mountPath, readOnly and source; resources; serviceAccount, its name. */}}
{{- define "palimpsest.taskPod" -}}
{{- $root := .root -}}
{{- $values := .values -}}
restartPolicy: Never
{{- with .serviceAccount }}
serviceAccountName: {{ . }}
{{- end }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml $root.Values.podSecurityContext | nindent 2 }}
{{- with $values.extraInitContainers }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: {{ .name }}
    image: {{ include "palimpsest.image" $root }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    args:
      {{- toYaml .args | nindent 6 }}
    {{- with include "palimpsest.environment" . | trim }}
    {{- . | nindent 4 }}
    {{- end }}
    resources:
      {{- toYaml .resources | nindent 6 }}
    securityContext:
      {{- toYaml $root.Values.securityContext | nindent 6 }}
    {{- if or .volumes $values.extraVolumeMounts }}
    volumeMounts:
      {{- range .volumes }}
      - {{ omit . "source" | toYaml | nindent 8 | trim }}
      {{- end }}
      {{- with $values.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- end }}
{{- if or .volumes $values.extraVolumes }}
volumes:
  {{- range .volumes }}
  - {{ merge (dict "name" .name) .source | toYaml | nindent 4 | trim }}
  {{- end }}
  {{- with $values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- with include "palimpsest.placement" $values | trim }}
{{ . }}
{{- end }}
{{- end -}}

{{/* A file of a Secret for a task, as an entry of its volumes. Nothing without a Secret. Parameters: name; mountPath;
     secret, with name and key. */}}
{{- define "palimpsest.secretVolume" -}}
{{- if .secret.name }}
- name: {{ .name }}
  mountPath: {{ .mountPath }}
  readOnly: true
  source:
    secret:
      secretName: {{ .secret.name }}
      defaultMode: 0440
      items:
        {{- range .keys }}
        - {key: {{ . }}, path: {{ . }}}
        {{- end }}
{{- end }}
{{- end -}}

{{/* The variables with which a task calls the server, as a list. */}}
{{- define "palimpsest.clientEnv" -}}
{{- $hasTls := ne .Values.tls.secretName "" -}}
- name: PALIMPSEST_URL
  value: {{ ternary "https" "http" $hasTls }}://{{ include "palimpsest.fullname" . }}.{{ .Release.Namespace }}.svc:{{ .Values.ports.grpc }}
{{- if $hasTls }}
{{- with .Values.tls.serverName }}
- name: PALIMPSEST_TLS_SERVER_NAME
  value: {{ . }}
{{- end }}
{{- if .Values.tls.clientSecretName }}
- name: PALIMPSEST_TLS_CA
  value: /etc/palimpsest/client/ca.crt
{{- if .Values.tls.clientCaSecret.name }}
- name: PALIMPSEST_TLS_CERT
  value: /etc/palimpsest/client/tls.crt
- name: PALIMPSEST_TLS_KEY
  value: /etc/palimpsest/client/tls.key
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The files of these variables, as volumes of a task. Only the named keys are mounted, so that the Secret can be that of
     the server, without its private key. */}}
{{- define "palimpsest.clientVolumes" -}}
{{- if .Values.tls.secretName }}
{{- $keys := ternary (list "ca.crt" "tls.crt" "tls.key") (list "ca.crt") (ne .Values.tls.clientCaSecret.name "") }}
{{- include "palimpsest.secretVolume" (dict "name" "client" "mountPath" "/etc/palimpsest/client" "secret" (dict "name" .Values.tls.clientSecretName) "keys" $keys) }}
{{- end }}
{{- end -}}
