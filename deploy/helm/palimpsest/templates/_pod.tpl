{{/* A pod that runs Palimpsest. Parameters: the root; component and env, which set the role; pod, the values of the component
     that replace those of the top level; preStop, the seconds before SIGTERM; resources; volume, for the data of a pod
     without a claim. */}}
{{- define "palimpsest.pod" -}}
{{- $root := .root -}}
{{- $more := list "topologySpreadConstraints" "extraEnv" "envSecrets" "extraVolumes" "extraVolumeMounts" "extraInitContainers" "extraContainers" -}}
{{- $values := include "palimpsest.podValues" (dict "root" $root "pod" .pod "more" $more) | fromYaml -}}
{{- if and .component (not $values.topologySpreadConstraints) -}}
{{- $_ := include "palimpsest.spread" . | fromYamlArray | set $values "topologySpreadConstraints" -}}
{{- end -}}
{{- $secrets := include "palimpsest.secrets" $root | fromYaml -}}
{{- /* Workers do not open the gateway, so they get no key of a provider. */ -}}
{{- $hasGateway := and $root.Values.gateway.enabled (ne .component "worker") -}}
{{- if $hasGateway -}}
{{- $secrets = include "palimpsest.heldKeys" $root | fromYaml | merge $secrets -}}
{{- end -}}
metadata:
  labels:
    {{- include "palimpsest.labels" $root | nindent 4 }}
    {{- with .component }}
    app.kubernetes.io/component: {{ . }}
    {{- end }}
    {{- with $values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    kubectl.kubernetes.io/default-container: palimpsest
    # A change of settings restarts the pod. Mounted Secrets are excluded, because the server reloads their files.
    checksum/config: {{ include "palimpsest.config" $root | sha256sum }}
    {{- if $values.envSecrets }}
    {{- $contents := list }}
    {{- range $values.envSecrets }}
    {{- $contents = append $contents (get (lookup "v1" "Secret" $root.Release.Namespace .) "data") }}
    {{- end }}
    checksum/env-secrets: {{ toJson $contents | sha256sum }}
    {{- end }}
    {{- with $values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  {{- with $root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  serviceAccountName: {{ include "palimpsest.serviceAccount" $root }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "palimpsest.graceSeconds" (dict "root" $root "preStop" .preStop) }}
  securityContext:
    {{- toYaml $root.Values.podSecurityContext | nindent 4 }}
  {{- with $values.extraInitContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: palimpsest
      image: {{ include "palimpsest.image" $root }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args: [serve, --config, /etc/palimpsest/config/palimpsest.toml]
      env:
        # The image sets these two variables, and variables override the file.
        - name: PALIMPSEST_LISTEN
          value: 0.0.0.0:{{ $root.Values.ports.grpc }}
        - name: PALIMPSEST_DATA_DIR
          value: /var/lib/palimpsest
        # The address for `palimpsest health` and other commands in the pod.
        - name: PALIMPSEST_URL
          value: {{ ternary "https" "http" (ne $root.Values.tls.secretName "") }}://127.0.0.1:{{ $root.Values.ports.grpc }}
        {{- range $name, $value := .env }}
        - name: {{ $name }}
          value: {{ $value | quote }}
        {{- end }}
        {{- with $values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $values.envSecrets }}
      envFrom:
        {{- range . }}
        - secretRef:
            name: {{ . }}
        {{- end }}
      {{- end }}
      ports:
        - name: grpc
          containerPort: {{ $root.Values.ports.grpc }}
        - name: admin
          containerPort: {{ $root.Values.ports.admin }}
        {{- if $hasGateway }}
        - name: gateway
          containerPort: {{ $root.Values.ports.gateway }}
        {{- end }}
      # Liveness: the process answers and its store has not failed permanently. Readiness: the store accepts writes. A full
      # disk only affects readiness, because a restart does not free space.
      startupProbe:
        {{- include "palimpsest.probe" (dict "root" $root "service" "palimpsest.liveness" "path" "/healthz") | nindent 8 }}
        failureThreshold: {{ divf $root.Values.probes.startupSeconds $root.Values.probes.periodSeconds | ceil | int }}
      livenessProbe:
        {{- include "palimpsest.probe" (dict "root" $root "service" "palimpsest.liveness" "path" "/healthz") | nindent 8 }}
        failureThreshold: {{ $root.Values.probes.failureThreshold }}
      readinessProbe:
        {{- include "palimpsest.probe" (dict "root" $root "service" "palimpsest.readiness" "path" "/readyz") | nindent 8 }}
        failureThreshold: 1
      {{- with .preStop }}
      lifecycle:
        preStop:
          sleep:
            seconds: {{ . }}
      {{- end }}
      resources:
        {{- toYaml .resources | nindent 8 }}
      securityContext:
        {{- toYaml $root.Values.securityContext | nindent 8 }}
      volumeMounts:
        - name: data
          mountPath: /var/lib/palimpsest
        - name: config
          mountPath: /etc/palimpsest/config
          readOnly: true
        {{- range $name, $secret := $secrets }}
        # Mounts a folder, because Kubernetes does not update a subPath when the Secret changes.
        - name: {{ $name }}
          mountPath: {{ include "palimpsest.secretsDir" $root }}/{{ $name }}
          readOnly: true
        {{- end }}
        {{- with $values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- with $values.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    - name: config
      configMap:
        name: {{ include "palimpsest.fullname" $root }}
    {{- range $name, $secret := $secrets }}
    - name: {{ $name }}
      secret:
        secretName: {{ $secret }}
        defaultMode: 0440
    {{- end }}
    {{- with .volume }}
    - name: data
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with $values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with include "palimpsest.placement" $values | trim }}
  {{- . | nindent 2 }}
  {{- end }}
{{- end -}}
