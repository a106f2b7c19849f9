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
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
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

{{/* The memory of a container: 1.3 times maxMemory plus 64 MiB, rounded up to MiB. */}}
{{- define "twotier.memory" -}}
{{- $size := toString .Values.maxMemory | upper }}
{{- if not (regexMatch "^[0-9]+([.][0-9]+)?[MGT]I?B$" $size) }}
{{- fail (printf "maxMemory: %q is not a size with its unit, such as 1GiB, 512MiB or 100MB"
      (toString .Values.maxMemory)) }}
{{- end }}
{{- $mib := dict "MIB" 1.0 "GIB" 1024.0 "TIB" 1048576.0
      "MB" 0.95367431640625 "GB" 953.67431640625 "TB" 953674.31640625 }}
{{- $number := regexFind "^[0-9.]+" $size | float64 }}
{{- mulf $number (get $mib (regexFind "[MGT]I?B$" $size)) 1.3 | addf 64 | ceil | printf "%.0fMi" }}
{{- end }}
