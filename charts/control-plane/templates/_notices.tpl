{{- /* Files of the receivers of notices by the value that names their Secret: the setting, and the file below /etc/muster/notices/NAME. */}}
{{- define "muster.notices.files" -}}
{{- dict "urlSecret" (list "urlFile" "url") "signingSecret" (list "secretFile" "key") "caSecret" (list "caFile" "ca.crt") | toJson }}
{{- end }}

{{- /* Setting `notice-receivers`, or nothing. The kubelet replaces $(NAME) in arguments; $$ keeps it. */}}
{{- define "muster.notices.receivers" -}}
{{- $files := include "muster.notices.files" . | fromJson }}
{{- $receivers := list }}
{{- range $each := .Values.notices.receivers }}
{{- $receiver := omit $each "urlSecret" "signingSecret" "caSecret" }}
{{- with $each.perMinute }}{{ $_ := set $receiver "perMinute" (int64 .) }}{{ end }}
{{- range $value, $file := $files }}
{{- if get $each $value }}{{ $_ := set $receiver (first $file) (printf "/etc/muster/notices/%s/%s" $each.name (last $file)) }}{{ end }}
{{- end }}
{{- $receivers = append $receivers $receiver }}
{{- end }}
{{- with $receivers }}{{ toJson . | replace "$(" "$$(" }}{{ end }}
{{- end }}

{{- /* Sources of the volume with these files, as JSON. The control plane starts without the Secret of a chat, and says which file is missing when it sends. */}}
{{- define "muster.notices.secrets" -}}
{{- $files := include "muster.notices.files" . | fromJson }}
{{- $sources := list }}
{{- range $each := .Values.notices.receivers }}
{{- range $value, $file := $files }}
{{- with get $each $value }}
{{- $item := dict "key" .key "path" (printf "%s/%s" $each.name (last $file)) }}
{{- $sources = append $sources (dict "secret" (dict "name" .name "items" (list $item) "optional" true)) }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $sources }}
{{- end }}
