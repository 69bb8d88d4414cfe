-- Beside dpal_ledger, which the container makes by itself.
CREATE DATABASE dpal_prefect;
CREATE DATABASE dpal_mlflow;
CREATE DATABASE dpal_mlflow_auth;
CREATE DATABASE dpal_label_studio;
