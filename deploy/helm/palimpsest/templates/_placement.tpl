{{/* The values of the pod of a component, as YAML. A value of the component replaces that of the top level, also if it is
     empty. Parameters: the root; pod, the values of the component; more, the names of values that the pod inherits besides
     its labels, its annotations and its place. */}}
{{- define "palimpsest.podValues" -}}
{{- $inherited := list "podAnnotations" "podLabels" "priorityClassName" "nodeSelector" "tolerations" "affinity" -}}
{{- $values := dict -}}
{{- range concat $inherited (.more | default list) -}}
{{- $_ := set $values . (get $.root.Values .) -}}
{{- end -}}
{{- range $name, $value := .pod -}}
{{- $_ := set $values $name $value -}}
{{- end -}}
{{- toYaml $values -}}
{{- end -}}

{{/* The fields of a pod that choose its node. Parameter: the values of the pod. */}}
{{- define "palimpsest.placement" -}}
{{- range $name := list "priorityClassName" "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" }}
{{- with get $ $name }}
{{ dict $name . | toYaml }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The default spread of the pods of a component: over zones, then over nodes. Parameters: the root; component. */}}
{{- define "palimpsest.spread" -}}
{{- $selector := include "palimpsest.selector" .root -}}
{{- $component := .component -}}
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  # Excludes pods of the previous release from the count.
  matchLabelKeys: [pod-template-hash]
  labelSelector:
    matchLabels:
      {{- $selector | nindent 6 }}
      app.kubernetes.io/component: {{ $component }}
{{- end }}
{{- end -}}

{{/* The environment of a container. Parameters: env, a list of variables; values, the values of the pod. */}}
{{- define "palimpsest.environment" -}}
{{- with concat .env (.values.extraEnv | default list) }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.envSecrets }}
envFrom:
  {{- range . }}
  - secretRef:
      name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}
