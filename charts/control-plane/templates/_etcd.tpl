{{- /* Flags by which etcd's own programs show who they are. */ -}}
{{- define "muster.fleet.etcd.client" -}}
- --cacert=/etc/etcd/client/ca.crt
- --cert=/etc/etcd/client/tls.crt
- --key=/etc/etcd/client/tls.key
{{- end }}

{{- /* What takes a snapshot and removes the oldest: the spec of a Job. */ -}}
{{- define "muster.fleet.snapshot" -}}
{{- $fleet := include "muster.fleet" . -}}
{{- $name := printf "%s-etcd" $fleet -}}
{{- $etcd := .Values.fleetApi.etcd -}}
{{- $image := include "muster.image" (list . $etcd.image $etcd.image.tag) -}}
{{- $client := include "muster.fleet.etcd.client" . | fromYamlArray -}}
# Ten minutes: the first run begins before etcd does.
backoffLimit: 6
activeDeadlineSeconds: 900
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
      - name: prune
        image: {{ include "muster.image" (list . .Values.image .Chart.AppVersion) | quote }}
        imagePullPolicy: {{ .Values.image.pullPolicy }}
        args: [prune-snapshots, --directory=/snapshots, --keep={{ $etcd.snapshots.keep }}]
        resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 64Mi}}
        securityContext: {{- include "muster.pod.unprivileged" . | nindent 10 }}
        volumeMounts:
          - name: snapshots
            mountPath: /snapshots
    volumes:
      - name: client
        secret:
          secretName: {{ $fleet }}-etcd-client
      - name: snapshots
        persistentVolumeClaim:
          claimName: {{ $name }}-snapshots
{{- end }}
