{{/* One Deployment: a dict of the root, its name, command, replicas, resources, environment, rights. */}}
{{- define "dpal.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .root.Release.Name }}-{{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {app.kubernetes.io/name: dpal, app.kubernetes.io/instance: {{ .root.Release.Name }}, app.kubernetes.io/component: {{ .name }}}
spec:
  replicas: {{ .replicas }}
  selector:
    matchLabels: {app.kubernetes.io/instance: {{ .root.Release.Name }}, app.kubernetes.io/component: {{ .name }}}
  template:
    metadata:
      labels: {app.kubernetes.io/name: dpal, app.kubernetes.io/instance: {{ .root.Release.Name }}, app.kubernetes.io/component: {{ .name }}}
    spec:
      automountServiceAccountToken: {{ eq .account "default" | ternary false true }}
      serviceAccountName: {{ .account }}
      terminationGracePeriodSeconds: 60
      securityContext: {runAsNonRoot: true, runAsUser: 1000, fsGroup: 1000, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: {{ .name }}
          image: {{ .root.Values.image | quote }}
          imagePullPolicy: {{ .root.Values.imagePullPolicy }}
          command: {{ toJson .command }}
          workingDir: /work
          env:
            - {name: PREFECT_API_URL, value: {{ .root.Values.prefectUrl | quote }}}
            - {name: DPAL_MLFLOW_URI, value: {{ .root.Values.mlflowUri | quote }}}
            - {name: DPAL_ALLOW, value: /state/allow.yaml}
            - {name: XDG_STATE_HOME, value: /state}
            - {name: PREFECT_HOME, value: /tmp/prefect}
            {{- range $name, $value := .environment }}
            - {name: {{ $name }}, value: {{ $value | quote }}}
            {{- end }}
          envFrom:
            - secretRef: {name: {{ .root.Values.secret }}}
          securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
          resources: {{ toJson .resources }}
          volumeMounts:
            - {name: work, mountPath: /work}
            - {name: state, mountPath: /state}
            - {name: tmp, mountPath: /tmp}
            - {name: home, mountPath: /home/dpal}
            - {name: shm, mountPath: /dev/shm}
      volumes:
        - name: work
          persistentVolumeClaim: {claimName: {{ .root.Values.claims.work.name }}}
        - name: state
          persistentVolumeClaim: {claimName: {{ .root.Values.claims.state.name }}}
        - {name: tmp, emptyDir: {}}
        - {name: home, emptyDir: {}}
        - {name: shm, emptyDir: {medium: Memory, sizeLimit: 2Gi}}
{{- end }}
