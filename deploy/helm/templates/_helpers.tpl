{{/* The name of everything: that of the release, which says twotier already in most cases. */}}
{{- define "twotier.name" -}}
{{- if contains "twotier" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}{{ printf "%s-twotier" (.Release.Name | trunc 44 | trimSuffix "-") }}{{ end }}
{{- end }}

{{/* What selects the pods. */}}
{{- define "twotier.pods" -}}
app.kubernetes.io/name: twotier
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "twotier.labels" -}}
{{ include "twotier.pods" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end }}

{{/* The Secret with cluster-secret and tokens. */}}
{{- define "twotier.secret" -}}
{{- .Values.existingSecret | default (include "twotier.name" .) }}
{{- end }}

{{/* Where nodes find each other: the names that the StatefulSet gives them. */}}
{{- define "twotier.join" -}}
{{- $name := include "twotier.name" . }}
{{- range $i := until (int .Values.replicas) }}{{ if $i }},{{ end -}}
{{ $name }}-{{ $i }}.{{ $name }}-nodes:7946
{{- end }}
{{- end }}
