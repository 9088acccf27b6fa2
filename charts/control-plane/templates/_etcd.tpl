{{- /* Flags by which etcd's own programs show who they are. */ -}}
{{- define "muster.fleet.etcd.client" -}}
- --cacert=/etc/etcd/client/ca.crt
- --cert=/etc/etcd/client/tls.crt
- --key=/etc/etcd/client/tls.key
{{- end }}

{{- /* Not empty where new members start from a snapshot in object storage. */ -}}
{{- define "muster.fleet.fetched" -}}
{{- if hasPrefix "s3://" .Values.fleetApi.etcd.restore }}yes{{ end -}}
{{- end }}

{{- /* Not empty where there is a claim for snapshots. */ -}}
{{- define "muster.fleet.keeps" -}}
{{- $etcd := .Values.fleetApi.etcd -}}
{{- if or $etcd.snapshots.schedule (and $etcd.restore (not (include "muster.fleet.fetched" .))) }}yes{{ end -}}
{{- end }}

{{- /* URL of the object storage of snapshots. */ -}}
{{- define "muster.fleet.objects.endpoint" -}}
{{- $objects := .Values.fleetApi.etcd.snapshots.objectStorage | default dict -}}
{{ $objects.endpoint | default (printf "https://s3.%s.amazonaws.com" $objects.region) }}
{{- end }}

{{- /* Flags by which the object storage is reached. */ -}}
{{- define "muster.fleet.objects.flags" -}}
{{- $objects := .Values.fleetApi.etcd.snapshots.objectStorage | default dict -}}
{{- if not $objects.credentialsSecret -}}
{{- fail "fleetApi.etcd.snapshots.objectStorage.credentialsSecret is missing: the name of a Secret with access-key-id and secret-access-key, without which no snapshot goes to object storage or comes from there" -}}
{{- end -}}
- --endpoint={{ include "muster.fleet.objects.endpoint" . }}
- --region={{ $objects.region }}
- --credentials=/etc/muster/objects
{{- if $objects.caSecret }}
- --authority=/etc/muster/objects-ca/ca.crt
{{- end }}
{{- end }}

{{- define "muster.fleet.objects.mounts" -}}
- name: objects
  mountPath: /etc/muster/objects
  readOnly: true
{{- if (.Values.fleetApi.etcd.snapshots.objectStorage | default dict).caSecret }}
- name: objects-ca
  mountPath: /etc/muster/objects-ca
  readOnly: true
{{- end }}
{{- end }}

{{- define "muster.fleet.objects.volumes" -}}
{{- $objects := .Values.fleetApi.etcd.snapshots.objectStorage | default dict -}}
- name: objects
  secret:
    secretName: {{ $objects.credentialsSecret }}
{{- with $objects.caSecret }}
- name: objects-ca
  secret:
    secretName: {{ . }}
{{- end }}
{{- end }}

{{- /* What takes a snapshot, removes the oldest and copies the new one to object storage: the spec of a Job. */ -}}
{{- define "muster.fleet.snapshot" -}}
{{- $fleet := include "muster.fleet" . -}}
{{- $name := printf "%s-etcd" $fleet -}}
{{- $etcd := .Values.fleetApi.etcd -}}
{{- $image := include "muster.image" (list . $etcd.image $etcd.image.tag) -}}
{{- $client := include "muster.fleet.etcd.client" . | fromYamlArray -}}
{{- $objects := $etcd.snapshots.objectStorage | default dict -}}
# Ten minutes: the first run begins before etcd does.
backoffLimit: 6
# A snapshot that was taken and cannot be kept as it should is not taken again, or the volume would soon have nothing older.
podFailurePolicy:
  rules:
    - action: FailJob
      onExitCodes:
        containerName: keep
        operator: NotIn
        values: [0]
activeDeadlineSeconds: {{ ternary 1800 900 (not (empty $objects.bucket)) }}
template:
  metadata:
    {{- include "muster.pod.metadata" (list . (print $name "-jobs") $etcd (dict)) | nindent 4 }}
  spec:
    restartPolicy: Never
    automountServiceAccountToken: false
    {{- include "muster.pod.placement" (list . (print $name "-jobs") $etcd) | nindent 4 }}
    initContainers:
      - name: snapshot
        image: {{ $image | quote }}
        command:
          - etcdctl
          # One of the members.
          - --endpoints=https://{{ $name }}.{{ .Release.Namespace }}.svc:2379
          {{- range $client }}
          - {{ . }}
          {{- end }}
          - --command-timeout=600s
          - snapshot
          - save
          # The name of a pod is its own.
          - /snapshots/$(POD_NAME).db
        env:
          - name: POD_NAME
            valueFrom:
              fieldRef:
                fieldPath: metadata.name
        resources: {requests: {cpu: 10m, memory: 32Mi}, limits: {memory: 256Mi}}
        securityContext: {{- include "muster.pod.unprivileged" . | nindent 10 }}
        volumeMounts:
          - name: client
            mountPath: /etc/etcd/client
            readOnly: true
          - name: snapshots
            mountPath: /snapshots
    containers:
      - name: keep
        image: {{ include "muster.image" (list . .Values.image .Chart.AppVersion) | quote }}
        imagePullPolicy: {{ .Values.image.pullPolicy }}
        args:
          - keep-snapshots
          - --directory=/snapshots
          - --keep={{ $etcd.snapshots.keep }}
          {{- with $objects.bucket }}
          - --upload=$(POD_NAME).db
          - --to=s3://{{ . }}/{{ $objects.prefix | default (printf "%s/%s/" $.Release.Namespace $name) }}
          # Not while members may still read one of the oldest.
          - --keep-objects={{ ternary 0 $objects.keep (ne (include "muster.fleet.fetched" $) "") }}
          {{- include "muster.fleet.objects.flags" $ | nindent 10 }}
        env:
          - name: POD_NAME
            valueFrom:
              fieldRef:
                fieldPath: metadata.name
          {{- end }}
        # `kubectl describe pod` shows what could not be kept.
        terminationMessagePolicy: FallbackToLogsOnError
        resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 64Mi}}
        securityContext: {{- include "muster.pod.unprivileged" . | nindent 10 }}
        volumeMounts:
          - name: snapshots
            mountPath: /snapshots
          {{- if $objects.bucket }}
          {{- include "muster.fleet.objects.mounts" . | nindent 10 }}
          {{- end }}
    volumes:
      {{- if $objects.bucket }}
      {{- include "muster.fleet.objects.volumes" . | nindent 6 }}
      {{- end }}
      - name: client
        secret:
          secretName: {{ $fleet }}-etcd-client
      - name: snapshots
        persistentVolumeClaim:
          claimName: {{ $name }}-snapshots
{{- end }}
