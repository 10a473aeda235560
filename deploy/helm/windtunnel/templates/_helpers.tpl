{{- define "windtunnel.labels" -}}
app.kubernetes.io/name: windtunnel
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "windtunnel.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* Rules of the features that are on, in some scopes, from the rights that the operator declares. */ -}}
{{- define "windtunnel.rules" -}}
{{- $declared := .root.Files.Get "files/rights.yaml" | fromYaml }}
{{- $gangs := .root.Values.operator.gangs }}
{{- $features := list "operator" }}
{{- if $gangs }}{{ $features = append $features "gangs" }}{{ end }}
{{- if and $gangs .root.Values.operator.place }}{{ $features = append $features "place" }}{{ end }}
{{- if .root.Values.operator.autoscale }}{{ $features = append $features "autoscale" }}{{ end }}
{{- if .root.Values.operator.fleet }}{{ $features = append $features "fleet" }}{{ end }}
{{- if and $gangs .root.Values.webhooks.enabled }}{{ $features = append $features "webhooks" }}{{ end }}
{{- range $scope := .scopes }}
{{- range $features }}
{{- with index $declared $scope . }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What a namespace with the pod security level `restricted` asks for. */ -}}
{{- define "windtunnel.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "windtunnel.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "windtunnel.webhook" -}}
{{- if .root.Values.webhooks.url }}
url: {{ .root.Values.webhooks.url }}{{ .path }}
{{- else }}
service:
  name: windtunnel-webhook
  namespace: {{ .root.Release.Namespace }}
  path: {{ .path }}
  port: 443
{{- end }}
{{- end }}
